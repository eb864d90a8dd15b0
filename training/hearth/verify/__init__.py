"""Check that a cluster is ready to train: node by node, pair by pair, then all together.

`python -m hearth.verify --help` lists the verbs. Only the sum across all nodes loads torch.
"""
