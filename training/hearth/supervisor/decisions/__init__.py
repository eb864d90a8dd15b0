"""The decisions when a node is lost, joins, leaves or fails: pure functions of what it knows.

`transition.transition` is the way in: from an event to what the node does about it.
"""
