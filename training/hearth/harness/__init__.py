"""Scores of a run on tasks of lm-eval, before and after the training.

They are taken once the training is over, by one node: the model is loaded once, and its adapter is
left out for the scores before. So the training begins at once, a task that fails costs nothing of
it, and the other nodes are free. lm-eval could divide the examples over the ranks, but equally,
while ranks are not, and it pickles what they exchange.

lm-eval is no part of the environment that trains (`base.extras`): a process of its own imports it.
`scores` is pure, `aside` starts that process, `tasks` and `evaluate` are what it does.
"""
