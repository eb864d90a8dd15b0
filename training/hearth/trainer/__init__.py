"""The training loop and what belongs to a step.

loop.py        the run from its first step to its adapter
stepper.py     one rank's part of a step, and why any split gives the same gradient
parallel.py    the model as each rank has it: all of it, or a part
planning.py    where the plan of each step comes from
compute.py     this rank's rows of a step
exchange.py    the one exchange of a step
learner.py     from the sum of the gradients to other parameters
rounds.py      for slow links: steps of each rank by itself, and what is averaged of them
window.py      what came of a step, and of the steps between two lines of metrics
judging.py     held-out evaluation, and the best of what was learned
keeping.py     checkpoints, the record and the result, on every node
state.py       what a checkpoint holds of what changes with the steps
"""
