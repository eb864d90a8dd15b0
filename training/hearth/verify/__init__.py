"""Check that a cluster is ready to train: node by node, pair by pair, then all together.

facts.py       facts of a node: versions, GPUs, network card
listener.py    server for the other nodes' echo and speed tests
pairs.py       connectivity, latency and bandwidth from this node to its peers
all_reduce.py  one real sum across all nodes, on the path that training takes
judgement.py   the advice for each node (pure)
table.py       the table of results (pure)

`python -m hearth.verify --help` lists the verbs. Only the sum across all nodes loads torch.
"""
