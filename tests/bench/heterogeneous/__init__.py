"""What unequal machines come to together: `python -m tests.bench.heterogeneous --help`."""
