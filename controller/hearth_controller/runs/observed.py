"""One run seen over all nodes: how it stands, and who is missing.

What a node says comes from its supervisor's record and the metrics, as the module `hearth_runs`
reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hearth.config import Run, run_of
from hearth_controller.script.run import ScriptRun, script_of
from hearth.base.errors import ConfigError, LaunchError, did_you_mean
from hearth.supervise.cause import ENDS, generation_of, telling

T = TypeVar("T")

Digest = Mapping[str, Any]
"""What one node knows of one run."""

GONE = "its supervisor is gone without a word: killed, or the machine was restarted"
SILENT = "does not answer"
UNKNOWN = "has nothing of this run on record"


@dataclass(frozen=True)
class Part:
    """A node's part in a run.

    Attributes:
        state: `waiting` or `running` with a supervisor that is alive; one of the three ends;
            `gone` without either; `silent` of a node that does not answer; `not asked` of one that
            this look left out; `unknown` of one that has nothing on record.
        rank: of the node in the run.
        silent_seconds: since the supervisor's last sign of life; None where nobody knows.
    """

    state: str
    rank: int
    silent_seconds: float | None = None

    @property
    def vanished(self) -> bool:
        """Whether the node left without an end."""
        return self.state in ("gone", "silent", "unknown")


@dataclass(frozen=True)
class RunSeen:
    """A run over all its nodes.

    Attributes:
        state: `waiting`, `running`, `finished`, `stopped`, `failed`, or `lost`: then no error of
            its own ended it, but a node that vanished.
        parts: by node, in order of rank.
        run: what was asked for; None where `run.yml` is missing or of another version, and for a
            run of a person's script.
        script: what was asked for, for such a run.
        metrics: the digest of the node that knows most steps.
        checkpoint: the newest that any node has: `step` and `age_seconds`.
        cause: why it ended, or why it waits, as the supervisors agreed (`node`, `message`, …).
        missing: nodes that a run under way is without.
        since: when it entered its state (ISO 8601), empty if nobody knows.
        stopping: whether somebody has asked for its end.
        files: bytes by path in the workspace, by node.
    """

    name: str
    state: str
    parts: Mapping[str, Part]
    run: Run | None
    script: ScriptRun | None
    metrics: Mapping[str, Any]
    checkpoint: Mapping[str, Any] | None
    cause: Mapping[str, Any] | None
    missing: Sequence[str]
    since: str
    stopping: bool
    files: Mapping[str, Mapping[str, int]]

    @property
    def alive(self) -> bool:
        """Whether a supervisor works on it on any node that answers."""
        return any(part.state in ("waiting", "running") for part in self.parts.values())

    @property
    def model(self) -> str | None:
        """Name of the model."""
        return self.run.source.name if self.run else None

    @property
    def program(self) -> str | None:
        """Name of a person's script."""
        return self.script.program if self.script else None

    @property
    def asked(self) -> dict[str, Any] | None:
        """What distinguishes this run from another, by name; None if nobody knows."""
        if self.script:
            return self.script.asked
        return self.run.settings.model_dump(mode="json") if self.run else None

    @property
    def begun(self) -> str:
        """When it was first asked for (ISO 8601), empty if nobody knows."""
        asked = self.run or self.script
        return (asked and asked.created) or self.metrics.get("began") or self.since

    @property
    def step(self) -> int:
        """Steps that are done."""
        return int(self._last("step", "step") or 0)

    @property
    def steps(self) -> int | None:
        """Steps of the whole run; None before its ranks have counted them."""
        return self._last("step", "steps") or self._last("start", "steps")

    @property
    def loss(self) -> float | None:
        """The last step's."""
        return self._last("step", "loss")

    @property
    def tokens_per_second(self) -> float | None:
        """At the last step, of a run under way."""
        return self._last("step", "tokens_per_second") if self.state == "running" else None

    @property
    def eta_seconds(self) -> float | None:
        """Time left at the last step, of a run under way."""
        return self._last("step", "eta_seconds") if self.state == "running" else None

    @property
    def seconds(self) -> float | None:
        """What its launches took together."""
        return self.metrics.get("seconds")

    @property
    def perplexity(self) -> tuple[float | None, float | None]:
        """Held out, before and after."""
        return self._last("before", "perplexity"), self._last("after", "perplexity")

    @property
    def why(self) -> str | None:
        """Return in a line why it ended or waits, and whose fault it was; None if all is well."""
        if self.state in ("finished", "stopped"):
            return None
        said = []
        if self.cause and self.state != "running":
            said.append(f"{self.cause['node']}: {str(self.cause['message']).splitlines()[0]}")
        else:
            told = {"gone": GONE, "silent": SILENT, "unknown": UNKNOWN}
            vanished = [(node, part) for node, part in self.parts.items() if part.vanished]
            said += [f"{node}: {told[part.state]}" for node, part in vanished]
        if self.missing:
            how = "goes on without" if self.state == "running" else "waits for"
            said.append(f"{how} {', '.join(self.missing)}")
        return "; ".join(said) or None

    def _last(self, kind: str, name: str) -> Any:
        return (self.metrics.get(kind) or {}).get(name)


def runs_seen(nodes: Mapping[str, Sequence[Digest] | None]) -> list[RunSeen]:
    """Return all runs, those under way first, then the one that began or ended last first.

    `nodes` holds what each node that was asked has on record; None if it does not answer.
    """
    by_run: dict[str, dict[str, Digest]] = {}
    for node, digests in nodes.items():
        for digest in digests or []:
            by_run.setdefault(digest["name"], {})[node] = digest
    runs = [run_seen(name, known, nodes) for name, known in by_run.items()]
    return sorted(runs, key=lambda run: (run.alive, run.since or run.begun), reverse=True)


def run_seen(
    name: str, known: Mapping[str, Digest], nodes: Mapping[str, Sequence[Digest] | None]
) -> RunSeen:
    """Return one run, from what nodes know of it; `nodes` are as in `runs_seen`."""
    records = {node: digest["record"] for node, digest in known.items() if digest["record"]}
    newest = max(records.values(), key=generation_of, default={})
    names = list(newest.get("nodes") or known)
    # One that is back from an earlier launch, of which it has not heard the end, works on it too.
    names += [node for node in known if node not in names and _alive(known[node])]
    parts = {
        node: _part(rank, known.get(node), _unheard(node, nodes)) for rank, node in enumerate(names)
    }
    of_parts = {node: records[node] for node in names if node in records}
    state, told = _state(parts, of_parts)
    metrics = max((digest["metrics"] for digest in known.values()), key=_how_far)
    checkpoints = [digest["checkpoint"] for digest in known.values() if digest["checkpoint"]]
    texts = [digest["run_file"] for digest in known.values()]
    return RunSeen(
        name=name,
        state=state,
        parts=parts,
        run=_first(run_of, texts),
        script=_first(script_of, texts),
        metrics=metrics,
        checkpoint=max(
            checkpoints, key=lambda one: (one["step"], -one["age_seconds"]), default=None
        ),
        cause=told.get("cause"),
        missing=_missing(state, parts, told, metrics),
        since=str(told.get("since", "")),
        # What lies where a supervisor was killed is of no launch that goes on.
        stopping=any(
            digest["asked"] in ("", "stop\n", "now\n")
            for digest in known.values()
            if _alive(digest)
        ),
        files={node: digest["files"] for node, digest in known.items()},
    )


def pick(runs: Sequence[RunSeen], name: str = "", under_way: bool = False) -> RunSeen:
    """Return the run of this name, or the newest; with `under_way` only those count that are.

    Raises:
        LaunchError: there is none.
    """
    fitting = [run for run in runs if run.alive or not under_way]
    if not name and fitting:
        return fitting[0]
    if not name:
        raise LaunchError("no run is under way" if under_way else "there is no run yet")
    for run in runs:
        if run.name == name:
            if run not in fitting:
                raise LaunchError(f"{name} is not under way: it is {run.state}")
            return run
    names = [run.name for run in runs]
    there = f"; there are {', '.join(names[:5])}" if names else "; there is none yet"
    raise LaunchError(f"no node has a run '{name}'{did_you_mean(name, names)}{there}")


def _alive(digest: Digest) -> bool:
    """Return whether a node's supervisor works on the run."""
    record = digest["record"]
    return bool(record and digest["alive"] and record["state"] not in ENDS)


def _unheard(node: str, nodes: Mapping[str, Sequence[Digest] | None]) -> str:
    """Return why nothing was heard of a node, or nothing."""
    if node not in nodes:
        return "not asked"
    return "silent" if nodes[node] is None else ""


def _part(rank: int, digest: Digest | None, unheard: str) -> Part:
    if unheard:
        return Part(unheard, rank)
    record = digest and digest["record"]
    if not record:
        return Part("unknown", rank)
    lives = record["state"] in ENDS or digest["alive"]
    return Part(record["state"] if lives else "gone", rank, digest["silent_seconds"])


def _state(
    parts: Mapping[str, Part], records: Mapping[str, Mapping[str, Any]]
) -> tuple[str, Mapping[str, Any]]:
    """Return the state of a run, and the record that tells it."""
    for state in ("running", "waiting"):
        for node, part in parts.items():
            if part.state == state:
                return state, records[node]
    ends = list(telling(records).values())
    if not ends:
        gone = [record for node, record in records.items() if parts[node].state == "gone"]
        return "lost", max(gone, key=generation_of, default={}) | {"cause": None}
    told = next((record for record in ends if record["state"] == "failed"), ends[0])
    if told["state"] == "failed" and (told["cause"] or {}).get("kind") == "node_lost":
        return "lost", told
    return str(told["state"]), told


def _missing(
    state: str,
    parts: Mapping[str, Part],
    record: Mapping[str, Any],
    metrics: Mapping[str, Any],
) -> list[str]:
    """Return the nodes that a run under way is without."""
    missing = {node for node, part in parts.items() if part.vanished}
    if state == "waiting":
        missing |= set(record.get("missing") or [])
    elif state == "running":
        start = metrics.get("start") or {}
        # The ranks of the launch before say nothing about this one; its own say all: a node that
        # does not answer here may well take part.
        if start.get("generation") == record.get("generation"):
            taking_part = {rank["node"] for rank in start.get("ranks", [])}
            missing = {node for node in parts if node not in taking_part}
    else:
        return []
    return [node for node in parts if node in missing]


def _how_far(metrics: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return by what the record of a run is found that goes furthest: its launch, then steps.

    A node that is not in the last launch may know of more steps, which that launch makes anew.
    """
    start, step = metrics.get("start") or {}, metrics.get("step") or {}
    return generation_of(start), int(step.get("step", -1)), str(start.get("time", ""))


def _first(reader: Callable[[str, str], T | None], texts: Iterable[str]) -> T | None:
    """Return what the first run file says that can be read and is of the reader's kind."""
    for text in texts:
        try:
            if found := reader(text, "run.yml"):
                return found
        except ConfigError:
            continue
    return None
