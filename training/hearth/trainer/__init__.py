"""The training loop and the parts of a step.

loop.py             the run, from its first step to its adapter
stepper.py          one rank's part of a step, and why any split gives the same gradient
planning.py         choice of the planner; plans recorded by an earlier run
sync_weights.py     equal initial weights on all ranks
compute.py          gradients of this rank's rows
exchange.py         the all-reduce of a step
optimizer_step.py   clipping, optimizer, schedule, loss scale
rounds.py           for slow links: local steps and their average
evaluation.py       held-out loss, when to evaluate, the best weights so far
checkpointing.py    checkpoints, metrics and result, on every node
telemetry.py        metrics.jsonl, curves and log (uses window.py)
"""
