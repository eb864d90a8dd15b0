"""The training loop and what belongs to a step.

loop.py        the run from its first step to its adapter
parallel.py    the model as each rank has it: all of it, or a part
planning.py    where the plan of each step comes from
compute.py     this rank's rows of a step
exchange.py    the one exchange of a step
window.py      the steps between two lines of metrics
state.py       what a checkpoint holds
"""
