"""The runs of a cluster, merged from the records of its nodes. Pure, except for the clock and collect.py."""
