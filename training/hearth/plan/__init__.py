"""Who computes which rows of a step, and whether it pays. Pure arithmetic: no torch, no files.

A step is a global batch: a slice of one seeded order over all rows, the same on every rank. The
plan says how many of its rows each rank takes. Because losses are weighted by token over the
whole global batch (see `trainer`), the gradient does not depend on the plan; only the time does.

order.py     which rows make up a step
speed.py     how long a rank computes for so many rows
split.py     who takes how many, so that all finish together
planner.py   where the plan of each step comes from: shares, a record, or
follow.py    speed: how the split moves when a machine slows down or recovers
straggler.py who has slowed down, and whom the others wait for
worth.py     which nodes make the run faster
sharded.py   what it costs that no rank has the whole model
"""
