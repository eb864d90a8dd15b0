"""What happens when a node is lost, joins, leaves or fails: pure functions of what a node knows.

`decide.next_moves` is the way in: from a `view` of the run and the node's `notes` to its moves.
"""
