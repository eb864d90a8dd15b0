"""Measure rounds of local steps on slow links: `python -m tests.bench.slow_link --help`."""
