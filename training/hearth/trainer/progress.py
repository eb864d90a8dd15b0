"""The progress of a run on one rank: the steps and the other things that all ranks have done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from hearth.plan.link_watch import LinkWatch
from hearth.trainer.window import LogWindow


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
        return plain | {"window": self.window.state(), "links": self.links.state()}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        """Return the progress with this `state`."""
        parts = {
            "window": LogWindow.from_state(state["window"]),
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
