"""Is this cluster what training needs? Looked at node by node, pair by pair, then all together.

facts.py       what a node is: versions, GPUs, its card
listener.py    what answers the other nodes, for a minute
pairs.py       whom this node reaches, how soon and how fast
all_reduce.py  one real sum across all nodes, on the path that training takes
verdict.py     what it adds up to: the one thing to do a node (pure)
table.py       how it is shown (pure)

`python -m hearth.verify --help` lists the verbs. Only the sum across all nodes loads torch.
"""
