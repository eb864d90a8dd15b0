"""Distribution of a run's model and data to the nodes: each node's part, and its progress."""
