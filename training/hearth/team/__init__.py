"""One supervisor per node, in place: agree on teams while the ranks stay alive.

Supervisors connect to each other directly, vote on the next team, and tell living ranks to form
its group. No node is special: the role of rank 0 passes to the next node when its machine is lost.
Standard library and psutil only, as in `hearth.supervise`, which relaunches ranks instead.
"""
