"""Real systemd machines in a network namespace of their own, on one Linux computer.

`plan` says what the machines are, `image` builds the system that they share, `network` lays their
cables, `machine` switches them on and off, `lab` keeps them together, `cli` is the command line.
"""
