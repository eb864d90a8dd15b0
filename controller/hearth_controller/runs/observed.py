"""One run observed over all nodes: its state, progress and missing nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hearth.base.errors import LaunchError, did_you_mean
from hearth.config import Run
from hearth.record.story import Story
from hearth_controller.runs.energy import watt_hours_per_million
from hearth_controller.script.run import ScriptRun

UNDER_WAY = ("running", "waiting", "queued")
"""States of a run that has not ended."""

GONE = "its supervisor is gone without a word: killed, or the machine was restarted"
SILENT = "does not answer"
UNKNOWN = "has nothing of this run on record"


@dataclass(frozen=True)
class NodeRun:
    """A node's part in a run.

    Attributes:
        state: `waiting` or `running` if its supervisor is alive; `away` if the owner has the
            machine meanwhile; `queued` if its Slurm job waits, or its supervisor for its turn; one
            of the three end states; `gone` if neither holds; `silent` if the node does not answer;
            `not asked` if it was not queried; `unknown` if it has no record of the run.
        rank: Rank of the node in the run.
        silent_seconds: Seconds since the supervisor's last sign of life; None if unknown.
        away: Why the owner has the machine; '' if it lends.
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
        story: Its progress, by the node that has recorded most steps; only the last window.
        checkpoint: The newest checkpoint on any node: `step` and `age_seconds`.
        cause: Why the run ended or waits, as the supervisors agreed (`node`, `message`, …).
        missing: Nodes that an active run lacks, but for those that the owner has.
        unreached: A sentence for each pair of its nodes that cannot connect.
        since: Time at which the run entered its state (ISO 8601), empty if unknown.
        stopping: Whether a stop was requested.
        job: Number of its Slurm job; '' without Slurm.
        turns: By node in whose queue it is, its `position` and its start (`at`).
        files: By node, bytes by path in the workspace.
        open_step: The step that it is in, if that takes long (`hearth.supervisor.open_step`).
    """

    name: str
    state: str
    parts: Mapping[str, NodeRun]
    run: Run | None
    script: ScriptRun | None
    story: Story
    checkpoint: Mapping[str, Any] | None
    cause: Mapping[str, Any] | None
    missing: Sequence[str]
    unreached: Sequence[str]
    since: str
    stopping: bool
    job: str
    turns: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Mapping[str, int]]
    open_step: Mapping[str, Any] | None = None

    @property
    def alive(self) -> bool:
        """Whether a supervisor is running it on any node that answers, or its job is queued."""
        return any(part.state in (*UNDER_WAY, "away") for part in self.parts.values())

    @property
    def away(self) -> dict[str, str]:
        """By node that the owner has, the reason: no fault, since it comes back by itself."""
        return {node: part.away for node, part in self.parts.items() if part.state == "away"}

    @property
    def place(self) -> tuple[float, str]:
        """The sort key for the order of the queue."""
        positions = [float(turn.get("position", 0)) for turn in self.turns.values()]
        return max(positions, default=0.0), self.name

    @property
    def starts_at(self) -> str | None:
        """Earliest start of a run in the queue (ISO 8601), if it has one."""
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
        return (
            (request and request.created)
            or (self.story.began and self.story.began.isoformat())
            or self.since
        )

    @property
    def team(self) -> list[str]:
        """The nodes that train together now, in order of rank; none unless it is running."""
        if self.state != "running":
            return []
        return [node for node in self.parts if node not in (*self.missing, *self.away)]

    @property
    def regroups(self) -> int:
        """Number of times that nodes left or joined its team, in all launches."""
        return self.story.regroups

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second at the last step of an active run."""
        return self.story.tokens_per_second if self.state == "running" else None

    @property
    def joules(self) -> float | None:
        """Energy so far of all nodes that measure theirs; None if none does."""
        return self.story.joules or None

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
        return self.story.seconds if self.story.spans else None

    @property
    def elapsed(self) -> float | None:
        """Seconds from its first record to the last, also between its launches."""
        return self.story.length if self.story.spans else None

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
        if self.state == "running":
            disks = self.story.disks.items()
            reasons += [f"{node} writes no checkpoints ({why})" for node, why in disks]
        reasons += self.unreached
        if self.away:
            had = ", ".join(f"{node} ({why})" for node, why in self.away.items())
            reasons.append(f"the owner has {had}")
        return "; ".join(reasons) or None

    @property
    def trouble(self) -> Mapping[str, Any] | None:
        """The cause of its state if that is a fault; machines that the owner has are none."""
        return None if self.cause and self.cause.get("kind") == "away" else self.cause

    def _absence(self, node: str) -> str:
        """Return the name of a missing node, with the reason why it left if that is on record."""
        absence = self.story.away.get(node)
        return f"{node}, which {absence.text}" if absence and absence.why else node


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
