"""How soon the split follows a machine that slows down: `python -m tests.bench.follow --help`."""
