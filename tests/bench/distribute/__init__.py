"""What it takes to bring a model to all nodes: `python -m tests.bench.distribute --help`."""
