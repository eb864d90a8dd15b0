"""The progress of a run on one rank: the steps and the other things that all ranks have done.

Steps are summed up since the last line of metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from pydantic import TypeAdapter

from hearth.plan.link_watch import LinkWatch
from hearth.plan.split import Plan, Plans
from hearth.trainer.exchange import StepSum


@dataclass(frozen=True)
class StepResult:
    """Result of a step, or of a round of local steps.

    Attributes:
        plans: the plan of each step.
        rate: the learning rate of the last step.
        norm: norm of the gradient; for a round, the mean norm of the local gradients.
        skipped: number of steps whose gradient was not finite.
        by_scaler: whether the skipped step is harmless, because the loss scaler of fp16 was
            still lowering its scale.
        bad: rows of all ranks whose gradient, computed alone, was not finite.
        watched: means of an objective of preferences, by their name in a step's record.
    """

    plans: Plans
    summed: StepSum
    rate: float
    norm: float
    skipped: int = 0
    by_scaler: bool = False
    bad: Sequence[str] = ()
    watched: Mapping[str, float] = field(default_factory=dict)


@dataclass
class LogWindow:
    """The steps since the last line of metrics: their seconds, sums, plans, and those skipped."""

    seconds: list[float] = field(default_factory=list)
    sums: list[StepSum] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    watched: list[dict[str, float]] = field(default_factory=list)
    skipped: int = 0
    scaler_skipped: int = 0

    def add(self, result: StepResult, seconds: float) -> None:
        """Add a step, or a round of steps, that took `seconds`."""
        self.skipped += 0 if result.by_scaler else result.skipped
        self.scaler_skipped += result.skipped if result.by_scaler else 0
        steps = len(result.plans)
        self.seconds += [seconds / steps] * steps
        self.sums.append(result.summed)
        self.plans += result.plans
        if result.watched:
            self.watched.append(dict(result.watched))

    def record(self) -> dict[str, Any]:
        """Return means of loss and time per step, sums of tokens and energy, and more."""
        steps, seconds = len(self.plans), sum(self.seconds)

        def over_steps(name: str) -> list[tuple[float, ...]]:
            return list(zip(*(getattr(summed, name) for summed in self.sums), strict=True))

        tokens = [sum(counts) for counts in over_steps("tokens")]
        compute = [sum(times) for times in over_steps("compute_seconds")]
        stages = self.plans[-1].whole
        return {
            "loss": sum(summed.loss for summed in self.sums) / steps,
            **{
                name: sum(each[name] for each in self.watched) / len(self.watched)
                for name in (self.watched[0] if self.watched else ())
            },
            "skipped": self.skipped,
            "scaler_skipped": self.scaler_skipped,
            "tokens": sum(tokens),
            # Tokens per second of wall time; `own_…` counts only the rank's computing time.
            "tokens_per_second": round(sum(tokens) / seconds, 1),
            "tokens_per_second_by_rank": [round(count / seconds, 1) for count in tokens],
            "own_tokens_per_second_by_rank": [
                round(count / time, 1) if count else 0.0
                for count, time in zip(tokens, compute, strict=True)
            ],
            # Their optimizer's time is that of the step before, so it may be more than this one's.
            **(
                {"busy_by_rank": [round(min(1.0, time / seconds), 3) for time in compute]}
                if stages
                else {}
            ),
            "compute_seconds_by_rank": [round(time / steps, 4) for time in compute],
            # Waiting in the previous step's exchange: this one is not over when it reports.
            "wait_seconds_by_rank": [
                round(sum(times) / steps, 4) for times in over_steps("wait_seconds")
            ],
            "peak_memory_mib_by_rank": [
                round(max(peaks)) for peaks in over_steps("peak_memory_mib")
            ],
            "celsius_by_rank": [max(heat) or None for heat in over_steps("celsius")],
            # Of each node by its first rank; those that measure nothing have none.
            "energy_joules_by_rank": [
                round(sum(joules), 3) if any(metered) else None
                for joules, metered in zip(over_steps("joules"), over_steps("metered"), strict=True)
            ],
            "rows_by_rank": [
                sum(rows) for rows in zip(*(plan.rows for plan in self.plans), strict=True)
            ],
        }


@dataclass
class Progress:
    """Steps and other things done. The ranks of a group have the same, and do the same next.

    Attributes:
        launch: identifies the launch whose training this rank has; empty while it has none.
        generation: of the newest group that has settled, or of the launch.
        step: steps done.
        done: things done together besides steps: announcement, comparisons, evaluations, new
            groups.
        announced: whether the start is recorded.
        begun: whether the evaluation before the first step is done.
        ended: whether the evaluation after the last step is done.
        comparison_due: whether the ranks have to compare their replicas after the newest step.
        evaluation_due: whether the newest step is still to be evaluated. A stop does not wait for
            it: it then runs after the run is resumed.
        checkpoint_due: whether this node has to write a checkpoint of the newest step.
        stopping: whether a stop was requested.
        failures: steps in a row whose gradient was not finite.
        nodes: of the newest group.
        joules: energy that the run has used so far on all nodes that measure theirs, also for steps
            that were lost; None if none does.
        disks: by node whose disk takes no writes, the reason.
        window: the steps that are not logged yet.
        links: finds the links that became slow.
    """

    launch: str = ""
    generation: int = 0
    step: int = 0
    done: int = 0
    announced: bool = False
    begun: bool = False
    ended: bool = False
    comparison_due: bool = False
    evaluation_due: bool = False
    checkpoint_due: bool = False
    stopping: bool = False
    failures: int = 0
    nodes: tuple[str, ...] = ()
    joules: float | None = None
    disks: dict[str, str] = field(default_factory=dict)
    window: LogWindow = field(default_factory=LogWindow)
    links: LinkWatch = field(default_factory=LinkWatch)

    def add_energy(self, joules: Iterable[float | None]) -> None:
        """Add the energy of ranks to that of the run; None for one that measures nothing."""
        for each in joules:
            if each is not None:
                self.joules = round((self.joules or 0.0) + each, 3)

    def state(self) -> dict[str, Any]:
        """Return the progress as JSON, for a rank that goes on from here."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return plain | {"window": asdict(self.window), "links": self.links.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Return the progress with this `state`."""
        parts = {
            "window": TypeAdapter(LogWindow).validate_python(state["window"]),
            "links": LinkWatch.from_state(state["links"]),
            "nodes": tuple(state["nodes"]),
        }
        return cls(**state | parts)


@dataclass(frozen=True)
class Standing:
    """The progress that a rank tells of when a group is new.

    Attributes:
        rank: its number.
        keeps: whether it writes its node's record, checkpoints and best weights.
        launch, generation, step, done: as in `Progress`.
        best: the lowest held-out loss so far, whose weights its node keeps.
    """

    rank: int
    keeps: bool
    launch: str
    generation: int
    step: int
    done: int
    best: float | None

    def reached(self) -> tuple[str, int, int, int]:
        """Return the figures that are equal on ranks with the same training, and on no others.

        The steps alone are not: a step that a rank has taken and the others have not is taken again
        by those if it is lost, and its sum then has another rounding.
        """
        return self.launch, self.generation, self.step, self.done


def furthest(everyone: list[Standing]) -> Standing | None:
    """Return the rank that all others go on from: the furthest.

    On a tie it is that of the newest group, and of those the lowest.

    Only a rank that keeps a record can be it. Another rank that is even further takes the last
    thing back: no record has it, so it is done again. None if no rank has trained yet.
    """
    trained = [each for each in everyone if each.launch and each.keeps]
    return max(
        trained, key=lambda each: (each.step, each.done, each.generation, -each.rank), default=None
    )
