"""The supervisor's files on its node: the record of the run, and the lock on the node.

A record as it is read can hold anything. It is checked without pydantic: the supervisor reads
records, and loads only psutil beside the standard library.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

from hearth.base.errors import LaunchError
from hearth.base.files import read_object, write_whole
from hearth.base.json_lines import read_as
from hearth.base.locks import held, is_held, is_in_queue
from hearth.supervisor.cause import Cause, State, generation_of
from hearth.supervisor.open_step import OldStep
from hearth.supervisor.spec import Spec, lock_file, record_file

READERS = 1.0
"""Seconds of patience for a lock that readers may hold for an instant."""


class NodeTaken(LaunchError):
    """Another run has this node."""


def now() -> str:
    """Return the time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class EndedLaunch:
    """A launch that ended while the run went on, the time of its end, and its cause if known."""

    generation: int
    ended: str
    cause: Cause | None


@dataclass
class RunRecord:
    """State of a run on this node. `rank` is the node's; times are ISO 8601 UTC.

    `began` is when its first supervisor here was started, `since` when it entered its `state`;
    `unit` is the systemd unit that carries the supervisor, None for a process group of its own;
    `job` is the number of the Slurm job that does, '' until this node knows it, None without Slurm;
    `nodes` are all nodes of the run in rank order; `script` is the file name of a user's script,
    if the run executes one; `launches` are those that ended while the run went on; `away` is why
    the owner has the node, "": it lends; `unreached` has a sentence for each
    node that cannot connect to another one; `open_step` is a step that takes long.
    """

    run: str
    node: str
    rank: int
    generation: int
    pid: int
    state: State = "waiting"
    began: str = field(default_factory=now)
    since: str = field(default_factory=now)
    heartbeat: str = field(default_factory=now)
    missing: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    exit_code: int | None = None
    cause: Cause | None = None
    unit: str | None = None
    nodes: list[str] = field(default_factory=list)
    script: str = ""
    job: str | None = None
    away: str = ""
    unreached: list[str] = field(default_factory=list)
    launches: list[EndedLaunch] = field(default_factory=list)
    open_step: OldStep | None = None

    @classmethod
    def from_spec(cls, spec: Spec, **facts: Any) -> RunRecord:
        """Return the first record of a node's part in a run, with more `facts` by field."""
        return cls(
            **{"generation": spec.generation, "pid": os.getpid()} | facts,
            run=spec.run,
            node=spec.node,
            rank=spec.rank,
            nodes=list(spec.nodes),
            script=Path(spec.script).name if spec.scripted else "",
        )

    def launch_ended(self, cause: Cause | None) -> None:
        """Note why a launch ended, and go back to waiting."""
        self.launches.append(EndedLaunch(self.generation, now(), cause))
        self.cause, self.exit_code = cause, None
        self.enter("waiting")

    def enter(self, state: State) -> None:
        """Change the state and note the time."""
        self.state = state
        self.since = now()

    def wait(self) -> None:
        """Enter the state of a run that waits, unless it does already."""
        if self.state != "waiting":
            self.enter("waiting")

    def write(self, path: Path) -> None:
        """Write the record atomically: a reader sees the old one or the new one.

        A full disk must not end the supervisor, which still has ranks to stop: errors are ignored,
        the old record stays, and `alive` shows the reader whether the supervisor is running.
        """
        self.heartbeat = now()
        with suppress(OSError):
            write_whole(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def read_record(workspace: Path, run: str) -> dict[str, Any]:
    """Return a run's record, and `alive`: whether its supervisor is still running.

    Raises `LaunchError` if the run was never started on this node, or its record is damaged.
    """
    path = record_file(workspace, run)
    if not path.exists():
        raise LaunchError(
            f"{workspace}: no run '{run}' was started here (no {path.relative_to(workspace)})"
        )
    if not (record := record_in(path)):
        raise LaunchError(
            f"{path}: this is no supervisor's record, or a damaged one; remove it if the run is "
            "over"
        )
    holder = lock_holder(workspace)
    here = holder is not None and holder["run"] == run
    return {**record, "alive": here or is_in_queue(workspace, run)}


@contextmanager
def node_lock(workspace: Path, run: str) -> Iterator[None]:
    """Hold the node's lock for one run; the kernel releases it when the process ends.

    Raises `NodeTaken` if another run holds the node; it is named.
    """
    path = lock_file(workspace)
    path.parent.mkdir(parents=True, exist_ok=True)
    with held(path, READERS) as ours:
        if not ours:
            holder = lock_holder(workspace) or {"run": "?", "pid": "?"}
            raise NodeTaken(held_by(workspace, holder))
        path.write_text(json.dumps({"run": run, "pid": os.getpid()}), encoding="utf-8")
        yield
        path.write_text("", encoding="utf-8")


def held_by(workspace: Path, holder: dict[str, Any]) -> str:
    """Return the error message for a node that another run holds."""
    return (
        f"{workspace}: run '{holder['run']}' is under way on this node (process {holder['pid']}): "
        "wait for it or stop it"
    )


def lock_holder(workspace: Path) -> dict[str, Any] | None:
    """Return the `run` and `pid` that hold the node's lock, or None."""
    path = lock_file(workspace)
    for _ in range(10):
        if not is_held(path):
            return None
        # The holder writes its name just after taking the lock: retry.
        if text := path.read_text(encoding="utf-8"):
            return dict(json.loads(text))
        time.sleep(0.02)
    return {"run": "?", "pid": "?"}


def misfit(record: Any) -> str:
    """Return which field of a record is missing or has a value that it cannot have, or ''.

    Records of earlier versions lack some fields.
    """
    if not isinstance(record, Mapping):
        return "it is no object"
    if "state" not in record:
        return "state is missing"
    for name, kind in get_type_hints(RunRecord).items():
        try:
            if name in record:
                read_as(kind, record[name])
        except (TypeError, KeyError, AttributeError):
            return f"{name} cannot be {str(record[name])[:80]!r}"
    return ""


def record_in(path: Path) -> dict[str, Any]:
    """Return the record in a file; {} if there is none, or a field has a value that it cannot."""
    record = read_object(path) or {}
    return {} if misfit({"state": "waiting", **record}) else record


_FIELDS = frozenset(field.name for field in fields(RunRecord))


def last_record(spec: Spec) -> dict[str, Any] | None:
    """Return the record of this launch, or None: never started, or corrupted by a power cut."""
    record = record_in(spec.record)
    # Relaunches within the run raise its generation above the spec's.
    return record if generation_of(record) >= spec.generation else None


def close_record(spec: Spec, record: dict[str, Any], message: str) -> RunRecord:
    """Record the run as failed on this node, for a supervisor that could not do so itself."""
    of_spec = ("run", "node", "rank", "nodes", "script")
    kept = {name: record[name] for name in _FIELDS - {*of_spec} if name in record}
    cause = Cause(spec.node, None, "node_lost", message)
    closed = RunRecord.from_spec(spec, **kept | {"cause": cause})
    closed.enter("failed")
    closed.write(spec.record)
    return closed
