"""Runs as the nodes' digests tell of them, merged over all nodes.

The digests come from the module `hearth_runs`, which reads the supervisor's record and the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from hearth.base.errors import ConfigError
from hearth.config import run_of
from hearth.record.story import Story
from hearth.supervisor.cause import ENDS, generation_of, telling
from hearth_controller.runs.job_state import settled
from hearth_controller.runs.node_digest import Digest, readable
from hearth_controller.runs.observed import UNDER_WAY, NodeRun, ObservedRun
from hearth_controller.script.run import script_of

T = TypeVar("T")

_LINES = ("before", "disk", "step", "after")
"""The lines of a metrics digest after the launch and its teams, in the order in which they were
written."""


def digests_of(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sequence[Digest] | None]:
    """Return the digests of `hearth_runs` by node; None for a node without an answer.

    `known` holds Ansible's variables by node, with the answer under `runs_look`.
    """
    answers = {name: known[name].get("runs_look", {}).get("runs") for name in names}
    return {name: each if isinstance(each, list) else None for name, each in answers.items()}


def observed_runs(nodes: Mapping[str, Sequence[Digest] | None]) -> list[ObservedRun]:
    """Return all runs: active ones first, then by latest start or end.

    Those in the nodes' queues come after those that train, in the order of the queue. Digests that
    no module can have made are left out (`node_digest.damage` names them).

    `nodes` holds the digests of each queried node; None if it does not answer.
    """
    by_run: dict[str, dict[str, Digest]] = {}
    for node, digests in nodes.items():
        for digest in readable(digests or []):
            by_run.setdefault(digest["name"], {})[node] = digest
    runs = [observed_run(name, known, nodes) for name, known in by_run.items()]
    newest = sorted(runs, key=lambda run: (run.alive, run.since or run.begun), reverse=True)
    return sorted(newest, key=_order)


def _order(run: ObservedRun) -> tuple[int, tuple[float, str]]:
    """Return a sort key: runs at work, then those that wait for their turn, then the others."""
    if run.alive and run.state == "queued":
        return 1, run.place
    return (0 if run.alive else 2), (0.0, "")


def observed_run(
    name: str, known: Mapping[str, Digest], nodes: Mapping[str, Sequence[Digest] | None]
) -> ObservedRun:
    """Merge the nodes' digests of one run; `nodes` are as in `observed_runs`."""
    known = {
        node: {**digest, "record": settled(digest["record"], digest["queue"])}
        if digest.get("queue") and digest["record"]
        else digest
        for node, digest in known.items()
    }
    records = {node: digest["record"] for node, digest in known.items() if digest["record"]}
    newest = max(records.values(), key=generation_of, default={})
    names = list(newest.get("nodes") or known)
    # A node that still runs an earlier launch, whose end it has not heard of, takes part too.
    names += [node for node in known if node not in names and _alive(known[node])]
    parts = {
        node: _part(rank, known.get(node), _no_answer(node, nodes))
        for rank, node in enumerate(names)
    }
    of_parts = {node: records[node] for node in names if node in records}
    state, decisive = _state(parts, of_parts)
    metrics = max((digest["metrics"] for digest in known.values()), key=_progress_key)
    checkpoints = [digest["checkpoint"] for digest in known.values() if digest["checkpoint"]]
    texts = [digest["run_file"] for digest in known.values()]
    return ObservedRun(
        name=name,
        state=state,
        parts=parts,
        run=_first(run_of, texts),
        script=_first(script_of, texts),
        metrics=metrics,
        story=Story.from_lines(_lines_of(metrics)).explain(newest.get("launches") or []),
        checkpoint=max(
            checkpoints, key=lambda one: (one["step"], -one["age_seconds"]), default=None
        ),
        cause=decisive.get("cause"),
        missing=_missing(state, parts, decisive, metrics),
        unreached=decisive.get("unreached") or [] if state in UNDER_WAY else [],
        since=str(decisive.get("since", "")),
        # A stop file left behind by a killed supervisor does not affect the current launch.
        stopping=any(
            digest["asked"] in ("", "stop\n", "now\n")
            for digest in known.values()
            if _alive(digest)
        ),
        job=next((str(record["job"]) for record in records.values() if record.get("job")), ""),
        turns={node: digest["turn"] for node, digest in known.items() if digest.get("turn")},
        files={node: digest["files"] for node, digest in known.items()},
        open_step=max(
            (
                record["open_step"]
                for node, record in of_parts.items()
                if parts[node].state == "running" and record.get("open_step")
            ),
            key=lambda each: each["seconds"],
            default=None,
        ),
    )


def _alive(digest: Digest) -> bool:
    """Return whether a node's supervisor is running the run."""
    record = digest["record"]
    return bool(record and digest["alive"] and record["state"] not in ENDS)


def _no_answer(node: str, nodes: Mapping[str, Sequence[Digest] | None]) -> str:
    """Return the reason why a node gave no answer, or ''."""
    if node not in nodes:
        return "not asked"
    return "silent" if nodes[node] is None else ""


def _part(rank: int, digest: Digest | None, reason: str) -> NodeRun:
    if reason:
        return NodeRun(reason, rank)
    record = digest and digest["record"]
    if not record:
        return NodeRun("unknown", rank)
    if record.get("away") and _alive(digest):
        return NodeRun("away", rank, digest["silent_seconds"], str(record["away"]))
    in_slurm = record["state"] == "queued" and record.get("job") is not None
    known = record["state"] in ENDS or in_slurm or digest["alive"]
    return NodeRun(record["state"] if known else "gone", rank, digest["silent_seconds"])


def _state(
    parts: Mapping[str, NodeRun], records: Mapping[str, Mapping[str, Any]]
) -> tuple[str, Mapping[str, Any]]:
    """Return the state of a run and the record that shows it.

    Of several it is that of the newest group: a node that left may not have heard of it yet.
    """
    for state in UNDER_WAY:
        found = [records[node] for node, part in parts.items() if part.state == state]
        if found:
            return state, max(found, key=generation_of)
    if away := [records[node] for node, part in parts.items() if part.state == "away"]:
        return "waiting", max(away, key=generation_of)
    final = list(telling(records).values())
    if not final:
        gone = [record for node, record in records.items() if parts[node].state == "gone"]
        return "lost", max(gone, key=generation_of, default={}) | {"cause": None}
    decisive = next((record for record in final if record["state"] == "failed"), final[0])
    if decisive["state"] == "failed" and (decisive["cause"] or {}).get("kind") == "node_lost":
        return "lost", decisive
    return str(decisive["state"]), decisive


def _missing(
    state: str,
    parts: Mapping[str, NodeRun],
    record: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> list[str]:
    """Return the nodes that an active run lacks."""
    missing = {node for node, part in parts.items() if part.vanished}
    if state == "waiting":
        missing |= set(record.get("missing") or [])
    elif state == "running":
        newest = _newest_group(metrics)
        # Ranks of an earlier group say nothing about this one. Its own ranks are decisive: a node
        # that does not answer the controller may still take part.
        if newest and generation_of(newest) == generation_of(record):
            taking_part = newest.get("nodes") or [rank["node"] for rank in newest.get("ranks", [])]
            missing = {node for node in parts if node not in taking_part}
    else:
        return []
    return [node for node, part in parts.items() if node in missing and part.state != "away"]


def _groups_of(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the lines of a metrics digest that tell of the groups of the last launch."""
    start = [metrics["start"]] if metrics.get("start") else []
    return [*start, *metrics.get("teams", [])]


def _lines_of(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the lines of a metrics digest in the order in which they were written."""
    return [*_groups_of(metrics), *(metrics[name] for name in _LINES if name in metrics)]


def _newest_group(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the line of the group that trained last, {} without one."""
    return (_groups_of(metrics) or [{}])[-1]


def _progress_key(metrics: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return a sort key for the progress of a run: its last group, then its steps.

    A node outside the last launch may have recorded more steps, which that launch repeats.
    """
    newest, step = _newest_group(metrics), metrics.get("step") or {}
    return generation_of(newest), int(step.get("step", -1)), str(newest.get("time", ""))


def _first(reader: Callable[[str, str], T | None], texts: Iterable[str]) -> T | None:
    """Return the first run file that `reader` can parse, or None."""
    for text in texts:
        try:
            if found := reader(text, "run.yml"):
                return found
        except ConfigError:
            continue
    return None
