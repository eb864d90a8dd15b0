"""The runs of a cluster, put together from what each node has on record. Pure but for the clock."""
