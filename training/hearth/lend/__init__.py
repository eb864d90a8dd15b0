"""Lending: whether the run may have this node now, or the owner wants it.

terms.py      a node's terms: the inventory's lend_when, lend_hours, lend_after, lend_command; pure
choice.py     the person's word: hearth-lend off, on or auto
lender.py     what counts as use, and for how long the node then stays away; pure
processes.py  processes of this machine: Hearth's own and others
command.py    a person's lend_command, run again and again
sensors.py    GPU, processor, power supply and lend_command, read together
first.py      the first question to a node, at the launch of a run
"""
