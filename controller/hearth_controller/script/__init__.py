"""Runs of a person's own script: what was asked for, what goes to the nodes, what is on record.

tree.py   a folder or a file as every node is to have it
ask.py    from what was typed to such a run
run.py    the run and its file, run.yml
"""
