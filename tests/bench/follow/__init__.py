"""Measure how soon the split follows a slower machine: `python -m tests.bench.follow --help`."""
