"""A node: its facts, its preparation for a run, and its speed. `python -m hearth.node` runs a verb.

facts.py        versions, GPUs and network card, of any node
inspection.py   before a run: address, port, folders, other runs, copies; imports no torch
prepare.py      checks the node and fetches model and data; each rank repeats it, all cached
rows.py         the rows of a run's data
outcome.py      keeps the facts of a prepared node for the next run with the same inputs
preview.py      the data of a run before it trains

speed.py        the speed of this rank or of a model's layers, cached or measured now
probe.py        measurement of a rank: micro-batches of 1, 2, 4 … rows
layer_probe.py  measurement of a decoder layer and of both ends of a model, of random weights
limit_cost.py   the speed that a limit on a GPU's power costs, from the cache

listener.py     answers the other nodes' tests; links.py asks them
all_reduce.py   one sum across all nodes, as in training
single_gpu.py   whether this machine can train alone; passes.py computes, also with Unsloth
"""
