"""Divide the rows of each step over the ranks and predict the speed. Pure: no torch, no files.

A step is a global batch: a slice of one seeded order over all rows, the same on every rank. The
plan gives the number of rows each rank takes. Because losses are weighted by token over the
whole global batch (see `trainer`), the gradient does not depend on the plan; only the time does.
In a pipeline every stage computes all rows, and `place` divides the layers instead.
"""
