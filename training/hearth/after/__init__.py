"""After the training: talk to the result, export it, score it, copy it, push it to the Hub.

`terminal` and `endpoint` answer; `export` writes formats of other programs. For what a run asks for
once it has finished, `finished` checks for obstacles before the run, and does it afterwards: one
node, each part by itself. The trained weights stay where they are after any failure, and each
failure is reported with the command that repeats the part.

lm-eval is no part of the environment that trains (`base.extras`): a process of its own imports it,
once the training is over. The model is loaded once, and its adapter is left out for the scores
before.
"""
