"""One run observed over all nodes: its state, progress and missing nodes.

The nodes' digests come from the module `hearth_runs`, which reads the supervisor's record and the
metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hearth.base.errors import ConfigError, LaunchError, did_you_mean
from hearth.config import Run, run_of
from hearth.supervise.cause import ENDS, generation_of, telling
from hearth_controller.runs.energy import watt_hours_per_million
from hearth_controller.runs.job_state import settled
from hearth_controller.runs.metric_line import is_sound
from hearth_controller.runs.story import Story
from hearth_controller.script.run import ScriptRun, script_of

T = TypeVar("T")

Digest = Mapping[str, Any]
"""The record of one run on one node."""

_LINES = ("before", "step", "after")
"""The lines of a metrics digest after the launch and its teams, in the order in which they were
written."""

UNDER_WAY = ("running", "waiting", "queued")
"""States of a run that has not ended."""

GONE = "its supervisor is gone without a word: killed, or the machine was restarted"
SILENT = "does not answer"
UNKNOWN = "has nothing of this run on record"


@dataclass(frozen=True)
class NodeRun:
    """A node's part in a run.

    Attributes:
        state: `waiting` or `running` if its supervisor is alive; `away` if the house has the
            machine meanwhile; `queued` if its Slurm job waits, or its supervisor for its turn; one
            of the three end states; `gone` if neither holds; `silent` if the node does not answer;
            `not asked` if it was not queried; `unknown` if it has no record of the run.
        rank: Rank of the node in the run.
        silent_seconds: Seconds since the supervisor's last sign of life; None if unknown.
        away: Why the house has the machine; '' if it lends.
    """

    state: str
    rank: int
    silent_seconds: float | None = None
    away: str = ""

    @property
    def vanished(self) -> bool:
        """Whether the node disappeared without recording an end."""
        return self.state in ("gone", "silent", "unknown")


@dataclass(frozen=True)
class ObservedRun:
    """A run over all its nodes.

    Attributes:
        state: `queued`, `waiting`, `running`, `finished`, `stopped`, `failed`, or `lost` (ended by
            a node that vanished, not by an error of its own).
        parts: Nodes in order of rank.
        run: The request; None if `run.yml` is missing or of another version, and for a run of a
            person's script.
        script: The request of a script run.
        metrics: The digest of the node that has recorded most steps.
        story: Its lines, read as the whole record would be.
        checkpoint: The newest checkpoint on any node: `step` and `age_seconds`.
        cause: Why the run ended or waits, as the supervisors agreed (`node`, `message`, …).
        missing: Nodes that an active run lacks, but for those that the house has.
        since: Time at which the run entered its state (ISO 8601), empty if unknown.
        stopping: Whether a stop was requested.
        job: Number of its Slurm job; '' without Slurm.
        turns: By node in whose queue it is, its `position` and its start (`at`).
        files: By node, bytes by path in the workspace.
    """

    name: str
    state: str
    parts: Mapping[str, NodeRun]
    run: Run | None
    script: ScriptRun | None
    metrics: Mapping[str, Any]
    story: Story
    checkpoint: Mapping[str, Any] | None
    cause: Mapping[str, Any] | None
    missing: Sequence[str]
    since: str
    stopping: bool
    job: str
    turns: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Mapping[str, int]]

    @property
    def alive(self) -> bool:
        """Whether a supervisor is running it on any node that answers, or its job is queued."""
        return any(part.state in (*UNDER_WAY, "away") for part in self.parts.values())

    @property
    def away(self) -> dict[str, str]:
        """By node that the house has, the reason: no fault, since it comes back by itself."""
        return {node: part.away for node, part in self.parts.items() if part.state == "away"}

    @property
    def place(self) -> tuple[float, str]:
        """The key by which the runs in the queue are served."""
        positions = [float(turn.get("position", 0)) for turn in self.turns.values()]
        return max(positions, default=0.0), self.name

    @property
    def starts_at(self) -> str | None:
        """Time before which a run in the queue does not start (ISO 8601), if it has one."""
        return next((turn.get("at") for turn in self.turns.values()), None)

    @property
    def model(self) -> str | None:
        """Name of the model."""
        return self.run.source.name if self.run else None

    @property
    def program(self) -> str | None:
        """Name of a person's script."""
        return self.script.program if self.script else None

    @property
    def settings(self) -> dict[str, Any] | None:
        """The settings of this run by name; None if unknown."""
        if self.script:
            return self.script.settings
        return self.run.settings.model_dump(mode="json") if self.run else None

    @property
    def begun(self) -> str:
        """Time of the first request (ISO 8601), empty if unknown."""
        request = self.run or self.script
        return (request and request.created) or self.metrics.get("began") or self.since

    @property
    def team(self) -> list[str]:
        """The nodes that train together now, in order of rank; none unless it is running."""
        if self.state != "running":
            return []
        return [node for node in self.parts if node not in (*self.missing, *self.away)]

    @property
    def regroups(self) -> int:
        """Number of times that nodes left or joined its team, in all launches."""
        return int(self.metrics.get("regroups", 0))

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second at the last step of an active run."""
        return self.story.tokens_per_second if self.state == "running" else None

    @property
    def joules(self) -> float | None:
        """Energy so far of all nodes that measure theirs; None if none does."""
        return self.metrics.get("end", {}).get("energy_joules", self.story.joules) or None

    @property
    def watt_hours_per_million(self) -> float | None:
        """Wh per million tokens in the last recorded steps; None if a node is not measured."""
        parts = self.story.window.parts.values() if self.story.window else ()
        if any(part.joules is None for part in parts):
            return None
        joules, tokens = (
            sum(getattr(each, what) for each in parts) for what in ("joules", "tokens")
        )
        return watt_hours_per_million(joules, tokens)

    @property
    def eta_seconds(self) -> float | None:
        """Time left as of the last step of an active run."""
        return self.story.eta_seconds if self.state == "running" else None

    @property
    def seconds(self) -> float | None:
        """Total duration of its launches."""
        return self.metrics.get("seconds")

    @property
    def why(self) -> str | None:
        """Reason why it ended or waits, and the node at fault, in one line; None if all is well."""
        if self.state in ("finished", "stopped"):
            return None
        if self.state == "queued":
            return str((self.cause or {}).get("message", "")) or None
        reasons = []
        if self.trouble and self.state != "running":
            message = str(self.trouble["message"]).splitlines()[0]
            reasons.append(f"{self.trouble['node']}: {message}")
        else:
            texts = {"gone": GONE, "silent": SILENT, "unknown": UNKNOWN}
            vanished = [(node, part) for node, part in self.parts.items() if part.vanished]
            reasons += [f"{node}: {texts[part.state]}" for node, part in vanished]
        if self.missing and self.state == "running":
            reasons.append(f"goes on without {', '.join(map(self._absence, self.missing))}")
        elif self.missing:
            reasons.append(f"waits for {', '.join(self.missing)}")
        if self.away:
            had = ", ".join(f"{node} ({why})" for node, why in self.away.items())
            reasons.append(f"the house has {had}")
        return "; ".join(reasons) or None

    @property
    def trouble(self) -> Mapping[str, Any] | None:
        """The cause of its state if that is a fault; machines that the house has are none."""
        return None if self.cause and self.cause.get("kind") == "away" else self.cause

    def _absence(self, node: str) -> str:
        """Return the name of a missing node, with the reason why it left if that is on record."""
        absence = self.story.away.get(node)
        return f"{node}, which {absence.text}" if absence and absence.why else node


def digests_of(
    names: Sequence[str], known: Mapping[str, Mapping[str, Any]]
) -> dict[str, Sequence[Digest] | None]:
    """Return the digests of `hearth_runs` by node; None for a node without an answer.

    `known` holds Ansible's variables by node, with the answer under `runs_look`.
    """
    return {name: known[name].get("runs_look", {}).get("runs") for name in names}


def observed_runs(nodes: Mapping[str, Sequence[Digest] | None]) -> list[ObservedRun]:
    """Return all runs: active ones first, then by latest start or end.

    Those in the nodes' queues come after those that train, in the order of the queue.

    `nodes` holds the digests of each queried node; None if it does not answer.
    """
    by_run: dict[str, dict[str, Digest]] = {}
    for node, digests in nodes.items():
        for digest in digests or []:
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
        if digest.get("queue")
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
    metrics = max((_sound(digest["metrics"]) for digest in known.values()), key=_progress_key)
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
    )


def pick(runs: Sequence[ObservedRun], name: str = "", under_way: bool = False) -> ObservedRun:
    """Return the run of this name, or the newest run; `under_way` admits active runs only.

    Raises:
        LaunchError: No run matches.
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


def _sound(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's metrics without lines that the trainer cannot have written."""
    sound = {
        name: value
        for name, value in metrics.items()
        if not isinstance(value, Mapping) or is_sound(value)
    }
    return sound | {"teams": [line for line in metrics.get("teams", []) if is_sound(line)]}


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
