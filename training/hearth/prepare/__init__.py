"""Preparation of a node for a run, before any node starts it.

node.py      checks the node and fetches model and data; each rank repeats it and finds all cached
facts.py     facts about a prepared node, which the play shows and compares
__main__.py  the command that the play calls on every node: python -m hearth.prepare
"""
