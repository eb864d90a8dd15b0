"""Measure the joint speed of unequal machines: `python -m tests.bench.heterogeneous --help`."""
