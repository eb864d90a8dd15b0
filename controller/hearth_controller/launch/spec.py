"""The launch spec of each node: everything that its supervisor has to know of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
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
    know a later generation of the run. Of other nodes a spec says no more than their names,
    addresses, ports and numbers of ranks; `timeouts` are in seconds; with `slurm` a job starts the
    supervisors. See `hearth.supervisor.spec.Spec`.
    """
    common = {
        "run": run["name"],
        "nodes": list(names),
        "addresses": [addresses[name] for name in names],
        "ports": [run["meeting_port"] or facts[name]["port"] for name in names],
        "nprocs": [nproc[name] for name in names],
        "resident": bool(run.get("resident")),
        "generation": max(its.get("generation", 0) for its in facts.values()),
        **_place_in_queue(run, facts),
        **timeouts,
        "slurm": slurm,
        "elastic": is_elastic(run, timeouts),
        "afterwards": bool(run.get("afterwards")),
        "min_nodes": min(run["min_nodes"] or 1, len(names)),
        **run.get("spec", {}),
    }
    # A supervisor takes its ranks off the Hub, and a stream is read there.
    streams = run.get("settings", {}).get("streaming")
    online = {"HF_HUB_OFFLINE": "0"} if streams else {}
    return {
        name: common
        | _own_part(name, rank, facts[name]["own"], nproc[name], gpus[name], online)
        | {"lend": facts[name]["own"].get("lend", {}) if lends(run) else {}}
        for rank, name in enumerate(names)
    }


def lends(run: Mapping[str, Any]) -> bool:
    """Return whether nodes may leave and return between two steps: not with `-e lend=off`."""
    return bool(run.get("resident") and run["lend"])


def _place_in_queue(
    run: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the place of a run in the queue of its nodes: the last one; {} without a queue.

    Positions are seconds since 1970, so that runs on different nodes hardly ever have the same.
    """
    if not (queue := run.get("queue")):
        return {}
    last = max(its.get("queue_end", 0.0) for its in facts.values())
    submitted = datetime.fromisoformat(queue["submitted"]).timestamp()
    return {"queue": {"position": max(submitted, last + 1), **queue}}


def is_elastic(run: Mapping[str, Any], timeouts: Mapping[str, float]) -> bool:
    """Return whether the other nodes go on without a lost one.

    Without a typed `-e elastic` they do where ranks are resident, unless the first loss is to
    end the run (`return_timeout` 0).
    """
    if run["elastic"] is None:
        return bool(run.get("resident")) and timeouts["return_timeout"] > 0
    return bool(run["elastic"])


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
