"""One supervisor per node: they agree on teams, run the ranks, stop them and record the end.

Supervisors connect to each other directly (`mesh`) and vote on each team; no node is special: the
role of rank 0 passes to the next node when its machine is lost. `decisions` has the rules, without
sockets, disk or processes. `member` carries them out for resident ranks, which live on and form new
groups, and `relaunched` for those that are started anew for each team.

Standard library and psutil only, so that it starts fast and survives failures that kill a rank;
only `torchrun`, a separate process, imports torch. `python -m hearth.supervisor --help` lists the
verbs.
"""
