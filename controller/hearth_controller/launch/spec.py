"""The launch spec of each node: everything that its supervisor has to know of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def node_specs(
    run: Mapping[str, Any],
    names: Sequence[str],
    addresses: Mapping[str, str],
    facts: Mapping[str, Mapping[str, Any]],
    nproc: Mapping[str, int],
    gpus: Mapping[str, int],
    timeouts: Mapping[str, float],
    slurm: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the spec by node for `run` on the nodes `names`, in order of rank.

    `facts` are those of the module `hearth_look`, also of nodes that do not train: none of them may
    know a later generation of the run. Of other nodes a spec says no more than their names and
    addresses; `timeouts` are in seconds; with `slurm` a job starts the supervisors. See
    `hearth.supervise.spec.Spec`.
    """
    first = names[0]
    common = {
        "run": run["name"],
        "nodes": list(names),
        "addresses": [addresses[name] for name in names],
        "meeting": {
            "address": addresses[first],
            "port": run["meeting_port"] or facts[first]["port"],
        },
        "generation": max(its.get("generation", 0) for its in facts.values()),
        **timeouts,
        "slurm": slurm,
        "elastic": run["elastic"],
        # By default more than half of them: two halves of a cut network never train side by side.
        "min_nodes": min(run["min_nodes"] or len(names) // 2 + 1, len(names)),
        **run.get("spec", {}),
    }
    # A supervisor takes its ranks off the Hub, and a stream is read there.
    streams = run.get("settings", {}).get("streaming")
    online = {"HF_HUB_OFFLINE": "0"} if streams else {}
    return {
        name: common | _own_part(name, rank, facts[name]["own"], nproc[name], gpus[name], online)
        for rank, name in enumerate(names)
    }


def _own_part(
    name: str, rank: int, own: Mapping[str, Any], nproc: int, gpus: int, online: Mapping[str, str]
) -> dict[str, Any]:
    """Return the part of a spec that is about its node; its ranks get the variables `online`."""
    return {
        "node": name,
        "rank": rank,
        "nproc": nproc,
        "gpus": gpus,
        **{place: own[place] for place in ("python", "workspace", "models")},
        # Two nodes on one computer would share the unit, and it is not ours to change.
        "unit": not own["one_computer"],
        "environment": {**online, **own["variables"]}
        | ({"OMP_NUM_THREADS": str(own["threads"])} if own["threads"] else {}),
    }
