"""One supervisor per node: start torchrun together, exchange heartbeats, stop and record the end.

Standard library and psutil only, so that it starts fast and survives failures that kill a rank;
only `torchrun`, a separate process, imports torch.
`life` is what all supervisors have in common. Those of a run in place are `hearth.team`'s. Where a
loss ends all ranks, rank 0's supervisor also runs the hub, the rendezvous that every supervisor
(its own included) joins as a member. `python -m hearth.supervise --help` lists the verbs.
"""
