"""How fast this rank computes, measured before it joins the others and kept for the next run.

probe.py     the measurement: micro-batches of 1, 2, 4 … rows
kept.py      what was measured on this node, and for what it holds
__main__.py  a process of its own for it: python -m hearth.measure
here.py      the speed of this rank: the kept one, or one measured now
"""
