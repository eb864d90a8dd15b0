"""The decisions when a node is lost, joins, leaves or fails: pure functions of its state.

`transition.transition` is the way in: from an event to the node's actions.
"""
