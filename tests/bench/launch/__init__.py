"""Measure how soon a run takes its first step: `python -m tests.bench.launch --help`."""
