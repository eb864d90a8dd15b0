"""Measure the cost of padding: `python -m tests.bench.packing --help`."""
