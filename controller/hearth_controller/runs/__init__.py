"""The runs of a cluster, from the records of its nodes. Pure, but for the clock and collect.py."""
