"""Lending: whether the run may have this node now, or the owner wants it.

terms.py      a node's terms: the inventory's lend_when, lend_hours, lend_after, lend_command
hours.py      hours of the day, in the node's local time; pure
choice.py     the person's word: hearth-lend off, on or auto
use.py        whether a reading of the sensors means that somebody wants the machine; pure
lender.py     lend or stay away, with a quiet time before the return; pure
processes.py  processes of this machine: Hearth's own and others
command.py    a person's lend_command, run again and again
sensors.py    GPU, processor, power supply and lend_command, read together
first.py      the first question to a node, at the launch of a run
"""
