"""What padding costs: `python -m tests.bench.packing --help`."""
