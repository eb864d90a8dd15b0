"""What rounds of local steps come to on slow links: `python -m tests.bench.slow_link --help`."""
