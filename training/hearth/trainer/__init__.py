"""The training loop and what belongs to a step.

loop.py        the run from its first step to its adapter
exchange.py    the one exchange of a step
state.py       what a checkpoint holds
"""
