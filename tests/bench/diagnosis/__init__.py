"""Measure the time until a failure is named: `python -m tests.bench.diagnosis --help`."""
