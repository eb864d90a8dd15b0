"""Measure how soon survivors go on after a lost node: `python -m tests.bench.elastic --help`."""
