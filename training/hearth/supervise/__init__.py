"""One small supervisor a node: all ready, torchrun, heartbeat, stop together, record the end.

Standard library and psutil only, so that it starts at once and lives through what kills a rank;
`torchrun` alone, a process of its own, is torch's.
Rank 0's supervisor also runs the hub, the meeting point that every supervisor (its own included)
joins as a member. `python -m hearth.supervise --help` lists the verbs.
"""
