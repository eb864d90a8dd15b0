"""How soon others go on without a lost node: `python -m tests.bench.elastic --help`."""
