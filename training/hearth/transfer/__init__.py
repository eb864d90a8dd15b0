"""Model and data transfer from node to node: one downloads, the others relay as it arrives.

The nodes form a chain, which keeps all links busy at once: every node relays a piece as soon as
it has verified it, so the last node completes a few pieces after the first.
`python -m hearth.transfer --help` lists the verbs. Nothing here loads torch.
"""
