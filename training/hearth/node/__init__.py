"""A node: its facts, its preparation for a run, and its speed. `python -m hearth.node` runs a verb.

facts.py        versions, GPUs and network card, of any node
inspection.py   before a run: address, port, other runs, copies; imports no torch
folders.py      checks of the folders of a run
prepare.py      checks the node and fetches model and data; each rank repeats it, all cached
rows.py         the rows of a run's data
prepared.py     facts about a prepared node, which the play shows and compares
outcome.py      keeps them for the next run with the same inputs
preview.py      the first examples of a run; records.py reads a person's data files first

probe.py        measurement of a rank: micro-batches of 1, 2, 4 … rows
layer_probe.py  measurement of a decoder layer and of both ends of a model, of random weights
kept.py         cache of the measurements, one file per case
own_speed.py    the speed of this rank, cached or measured now; own_layers.py that of its layers
limit_cost.py   the speed that a limit on a GPU's power costs, from that cache

listener.py     answers the other nodes' tests
pairs.py        tests the links to them; ports.py the ports of a run
all_reduce.py   one sum across all nodes, as in training
single_gpu.py   whether this machine can train alone: passes.py, unsloth_pass.py
"""
