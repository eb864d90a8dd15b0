"""Divide the rows of each step over the ranks and predict the speed. Pure: no torch, no files.

A step is a global batch: a slice of one seeded order over all rows, the same on every rank. The
plan gives the number of rows each rank takes. Because losses are weighted by token over the
whole global batch (see `trainer`), the gradient does not depend on the plan; only the time does.

row_order.py  the rows of each step
speed.py      measured compute time of a rank by number of rows
split.py      division of a step's rows so that all ranks finish together
planner.py    plans from fixed shares or from the record of an earlier run
follow.py     plans by speed, adjusted when a machine slows down or recovers
straggler.py  messages about slow ranks
prediction.py choice of the nodes that make the run faster
sharded.py    network cost of `parallel: fsdp`
"""
