"""What provisioning costs, measured on the lab: `python -m tests.bench.provision --help`."""
