"""Models and data from node to node: downloaded to one, and passed on while it still arrives.

table.py      what is sent: files, cut into pieces with a checksum each
order.py      who downloads, who lacks what, and who gets it from whom (pure)
holding.py    a thing that is sent as it lies on this node, whole or still arriving
giving.py     what answers the nodes that come after this one
asking.py     asks the node before this one, or the one before that if it falls silent
courier.py    one process a node: takes, gives, and says in a file how far it is
look.py       what a node has before anything is sent

The nodes form a chain, since all links are busy at once in one: every node passes a piece on as
soon as it has proved it, so the last has everything a few pieces after the first.

`python -m hearth.transfer --help` lists the verbs. Nothing here loads torch.
"""
