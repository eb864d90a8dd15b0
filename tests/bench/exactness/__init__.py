"""Measure how exact a split is in float32: `python -m tests.bench.exactness --help`."""
