"""Measure the cost of provisioning on the lab: `python -m tests.bench.provision --help`."""
