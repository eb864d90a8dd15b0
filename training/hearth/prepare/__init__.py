"""Preparation of a node for a run, before any node starts it.

look.py      inspects the node: address, port, other runs, copies; imports no torch
folders.py   checks the folders of a run
outcome.py   keeps the facts of a prepared node for the next run with the same inputs
node.py      checks the node and fetches model and data; each rank repeats it and finds all cached
facts.py     facts about a prepared node, which the play shows and compares
__main__.py  the command that the play calls first on every node: python -m hearth.prepare
"""
