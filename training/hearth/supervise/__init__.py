"""One supervisor per node: start torchrun together, exchange heartbeats, stop and record the end.

Standard library and psutil only, so that it starts fast and survives failures that kill a rank;
only `torchrun`, a separate process, imports torch.
Rank 0's supervisor also runs the hub, the rendezvous that every supervisor (its own included)
joins as a member. `python -m hearth.supervise --help` lists the verbs.
"""
