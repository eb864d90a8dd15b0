"""The steps of verifying a cluster, from one node's side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hearth_controller.doctor.judgement import Observation, why_no_sum

_IDLE = 30
"""Idle timeout of a node's listener in seconds; one more second is added per node."""


def spec_of(
    verb: str, own: Observation, nodes: Sequence[Observation], nproc: int, limit: float
) -> dict[str, Any] | None:
    """Return the spec of the command `hearth.node VERB` on a node, None if it takes no part.

    `nproc` processes take part in the all-reduce, 0 is one per GPU; it may take `limit` seconds.
    """
    if verb == "facts":
        allowed = [node.address for node in nodes]
        return {"address": own.address, "allowed": allowed, "idle": _IDLE + len(nodes)}
    usable = [node for node in nodes if node.usable]
    if own not in usable or len(usable) < 2:
        return None
    if verb == "talk":
        peers = [
            {"name": node.name, "address": node.address, "port": node.facts["port"]}
            for node in usable
        ]
        busy = any(node.facts["busy"] for node in usable)
        return {"own": own.name, "peers": peers, "speed": not busy}
    if why_no_sum(nodes):
        return None
    nprocs = [nproc or max(1, node.facts["devices"]) for node in usable]
    launch = {
        "run": "hearth-verify",
        "node": own.name,
        "rank": usable.index(own),
        "nodes": [node.name for node in usable],
        "addresses": [node.address for node in usable],
        "ports": [node.facts["meeting_port"] for node in usable],
        "nproc": nprocs[usable.index(own)],
        "nprocs": nprocs,
        "ready_timeout": limit / 2,
        "elastic": False,
        "stop_grace": 5,
    }
    return {"launch": launch, "limit": limit}
