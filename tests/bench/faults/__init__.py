"""Every fault on every node: `python -m tests.bench.faults --help`."""
