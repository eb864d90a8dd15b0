"""Measure the cost of bringing a model to all nodes: `python -m tests.bench.distribute --help`."""
