"""Real systemd machines in a network namespace of their own, on one Linux computer.

`plan` defines the machines, `image` builds their base system, `network` connects them, `gpu` fakes
graphics cards, `machine` switches them on and off, `slurm` makes them a Slurm cluster, `lab`
manages them, `cli` is the command line.
"""
