"""The decisions when a node is lost, joins, leaves or fails: pure functions of what it knows.

`decide.next_moves` is the way in: from a `view` of the run and the node's `notes` to its moves.
"""
