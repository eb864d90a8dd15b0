"""Model and data transfer from node to node: one downloads, the others relay as it arrives.

pieces.py     table of the sent files, cut into pieces with a checksum each
chain.py      transfer plan: source, receivers, chain order (pure)
holding.py    a model or data file on this node, complete or still arriving
serving.py    HTTP server for the nodes behind this one in the chain
fetching.py   HTTP client of the node before this one, with fallback to the ones before that
relay.py      one process a node: receives, relays, and records its progress in a file
own_copies.py inspection of a node before a transfer

The nodes form a chain, which keeps all links busy at once: every node relays a piece as soon as
it has verified it, so the last node completes a few pieces after the first.
`python -m hearth.transfer --help` lists the verbs. Nothing here loads torch.
"""
