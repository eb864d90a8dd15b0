"""Speed of this rank, measured before it joins the others and cached for the next run.

probe.py     the measurement: micro-batches of 1, 2, 4 … rows
kept.py      cache of this node's measurements, one file per case
limit_cost.py what a limit on a GPU's power costs, from that cache
__main__.py  the process that measures: python -m hearth.measure
layer_probe.py the measurement of a decoder layer and of both ends of a model, of random weights
own_layers.py their speed on this rank: the cached one, or one measured now
own_speed.py the speed of this rank: the cached one, or one measured now
"""
