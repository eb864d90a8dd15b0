"""Getting a node ready for a run, before any node starts it.

here.py      what a node must have, checked and fetched; a rank calls it once more, and finds all
facts.py     what the play is told of a node that is ready, to show and to compare
__main__.py  the command that the play calls on every node: python -m hearth.prepare
"""
