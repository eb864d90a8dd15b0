"""Runs as the nodes' digests describe them, checked and merged over all nodes.

The digests come from the module `hearth_runs`, which reads the supervisor's record and the metrics.
A node can hold and send anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hearth.base.errors import ConfigError
from hearth.base.places import RUN_NAME
from hearth.config import run_of
from hearth.record.events import StartEvent, TeamEvent, parse
from hearth.record.story import Story
from hearth.supervisor.cause import ENDS, generation_of, telling
from hearth.supervisor.record import misfit
from hearth_controller.runs.job_state import settled
from hearth_controller.runs.observed import UNDER_WAY, NodeRun, ObservedRun
from hearth_controller.script.run import script_of

T = TypeVar("T")


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
    story = max((_story(digest["metrics"]) for digest in known.values()), key=_progress_key)
    checkpoints = [digest["checkpoint"] for digest in known.values() if digest["checkpoint"]]
    texts = [digest["run_file"] for digest in known.values()]
    return ObservedRun(
        name=name,
        state=state,
        parts=parts,
        run=_first(run_of, texts),
        script=_first(script_of, texts),
        story=story.explain(newest.get("launches") or []),
        checkpoint=max(
            checkpoints, key=lambda one: (one["step"], -one["age_seconds"]), default=None
        ),
        cause=decisive.get("cause"),
        missing=_missing(state, parts, decisive, story.group),
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
    group: StartEvent | TeamEvent | None,
) -> list[str]:
    """Return the nodes that an active run lacks."""
    missing = {node for node, part in parts.items() if part.vanished}
    if state == "waiting":
        missing |= set(record.get("missing") or [])
    elif state == "running":
        # Ranks of an earlier group say nothing about this one. Its own ranks are decisive: a node
        # that does not answer the controller may still take part.
        if group and group.generation == generation_of(record):
            there = group.present if isinstance(group, StartEvent) else group.nodes
            missing = {node for node in parts if node not in there}
    else:
        return []
    return [node for node, part in parts.items() if node in missing and part.state != "away"]


def _story(metrics: Mapping[str, Any]) -> Story:
    """Return the state of a run by its abridged record (`hearth.record.lines.abridged`)."""
    story = Story()
    with suppress(ValueError):
        story.began = datetime.fromisoformat(metrics.get("began", ""))
    for event in parse(metrics.get("lines", [])):
        story.add(event)
    # Those of the whole record.
    story.regroups = metrics.get("regroups", 0)
    story.spans = [[*span] for span in metrics.get("spans", [])]
    story.length = story.spans[-1][1] if story.spans else 0.0
    return story


def _progress_key(story: Story) -> tuple[int, int, str]:
    """Return a sort key for the progress of a run: its last group, then its steps.

    A node outside the last launch may have recorded more steps, which that launch repeats.
    """
    group = story.group
    if group is None:
        return -1, -1, ""
    return group.generation, story.step, group.time


def _first(reader: Callable[[str, str], T | None], texts: Iterable[str]) -> T | None:
    """Return the first run file that `reader` can parse, or None."""
    for text in texts:
        try:
            if found := reader(text, "run.yml"):
                return found
        except ConfigError:
            continue
    return None


Digest = Mapping[str, Any]
"""The record of one run on one node."""

_Count = Annotated[int, Field(ge=0, le=10**18)]
_Seconds = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]


class _Job(BaseModel):
    model_config = ConfigDict(strict=True)
    job: str
    state: str
    reason: str


class _Turn(BaseModel):
    model_config = ConfigDict(strict=True)
    position: _Seconds = 0.0
    at: str | None = None
    submitted: str = ""


class _Checkpoint(BaseModel):
    model_config = ConfigDict(strict=True)
    step: _Count
    age_seconds: _Seconds


class _Metrics(BaseModel):
    model_config = ConfigDict(strict=True)
    began: str = ""
    spans: list[Annotated[list[_Seconds], Field(min_length=2, max_length=2)]] = []
    lines: list[str] = []
    regroups: _Count = 0


class _Digest(BaseModel):
    model_config = ConfigDict(strict=True)
    name: Annotated[str, Field(pattern=rf"^{RUN_NAME.pattern}$")]
    run_file: str
    record: dict[str, Any] | None
    alive: bool
    silent_seconds: _Seconds | None
    asked: str | None
    queue: _Job | None = None
    turn: _Turn | None = None
    metrics: _Metrics
    checkpoint: _Checkpoint | None
    curves: _Seconds | None
    files: dict[str, _Count]


def readable(digests: Iterable[Any]) -> Iterator[Digest]:
    """Yield the digests of a node without those that no module of Hearth can have made."""
    return (digest for digest in digests if not _misfit(digest))


def damage(nodes: Mapping[str, Iterable[Any] | None]) -> list[str]:
    """Return a sentence for each run of a node that is left out or has a damaged file.

    `nodes` holds the digests of each queried node; None if it does not answer.
    """
    return [
        f"{node}: run {_name_of(digest)}: {what}; move the file away, or the run's folder"
        for node, digests in nodes.items()
        for digest in digests or ()
        for what in _damage_of(digest)
    ]


def _damage_of(digest: Any) -> list[str]:
    """Return a sentence for each damage of a run, told by its node or found in the digest."""
    known = digest.get("damaged", []) if isinstance(digest, Mapping) else []
    told = [str(each) for each in known] if isinstance(known, list) else []
    wrong = _misfit(digest)
    return told + ([f"its record cannot be used ({wrong})"] if wrong and not told else [])


def _name_of(digest: Any) -> str:
    return str(digest.get("name", "?")) if isinstance(digest, Mapping) else "?"


def _misfit(digest: Any) -> str:
    """Return which field of a digest has a type that it cannot have, or ''."""
    try:
        _Digest.model_validate(digest)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'digest'}: {first['msg']}"
    record = digest["record"]
    return "" if record is None else misfit(record)
