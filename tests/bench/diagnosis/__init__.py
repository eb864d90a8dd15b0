"""How soon a failure is named: `python -m tests.bench.diagnosis --help`."""
