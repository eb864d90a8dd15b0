"""Faults of one node of a run that is trained in place, and what mends each of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from support.assembly import Assembly, Step
from support.waiting import HANG

BACK_AFTER = 1.0
"""Seconds until systemd starts a killed supervisor again (RestartSec of its unit)."""

STALL = (1.0, 3.0)
"""Seconds of a stall that ends nothing, the least and the most."""

BEYOND = 2.0
"""A silent node stays silent for these seconds beyond the silence that counts as a loss."""

KINDS = {
    "rank": "its rank is killed (-9)",
    "torchrun": "its torchrun is killed (-9)",
    "supervisor": "its supervisor is killed (-9), and comes back after a second",
    "power": "its power is cut, and it comes back",
    "bare": "its power is cut, and it comes back with an empty disk",
    "hang": "its rank hangs (SIGSTOP)",
    "silent": "supervisor and ranks stand still (SIGSTOP) until after they count as lost",
    "stall": "supervisor and ranks stand still (SIGSTOP) for 1 to 3 s",
    "leave": "it is shut down in order, and comes back",
    "cable": "its cable is cut until after it counts as lost",
    "flap": "its cable is cut for 1 to 3 s",
    "disk": "its disk is full for a while, in which the others write the checkpoints",
}
"""What happens to the node."""

HARMLESS = frozenset({"stall", "flap", "disk"})
"""Faults that must end no group."""

MOMENTS = ("steps", "checkpoint", "join", "leave")
"""What the run is doing: steps, a checkpoint, or taking in or letting go another node."""

_MOST_INTO_A_STEP = 0.3
_MOST_INTO_A_START = 5.0
"""Seconds from the beginning of a step, or of a supervisor, within which a fault comes."""


@dataclass(frozen=True)
class Fault:
    """A fault of one of KINDS, on one node."""

    kind: str
    node: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.node}"


def inflict(run: Assembly, fault: Fault) -> None:
    """Do it to the node."""
    match fault.kind:
        case "rank":
            run.kill_rank(fault.node)
        case "torchrun":
            run.kill_torchrun(fault.node)
        case "supervisor":
            run.kill(fault.node)
        case "power" | "bare":
            run.lose(fault.node)
        case "hang":
            run.hang(fault.node)
        case "silent" | "stall":
            run.freeze(fault.node)
        case "leave":
            run.leave(fault.node)
        case "cable" | "flap":
            assert run.cables
            run.cables.cut(fault.node)
        case "disk":
            run.fill(fault.node)


def lasts(fault: Fault, silence: float, chance: random.Random) -> float:
    """Return the seconds until a fault is mended, where silence of `silence` seconds is a loss."""
    if fault.kind in ("stall", "flap"):
        return chance.uniform(*STALL)
    if fault.kind in ("silent", "cable"):
        return silence + BEYOND
    return BACK_AFTER


def mend(run: Assembly, fault: Fault) -> None:
    """Have the node come back, where it does not by itself."""
    match fault.kind:
        case "supervisor" | "power":
            run.start(fault.node)
        case "bare":
            run.wipe(fault.node)
            run.start(fault.node)
        case "silent" | "stall":
            run.thaw(fault.node)
        case "leave":
            run.supervisor(fault.node).wait(60)
            run.start(fault.node)
        case "cable" | "flap":
            assert run.cables
            run.cables.join(fault.node)
        case "disk":
            run.free(fault.node)
            if run.supervisor(fault.node).poll() is not None:  # it could not start
                run.start(fault.node)


@dataclass(frozen=True)
class Case:
    """Faults of different nodes at once, in one of MOMENTS.

    `other` is the node that joins or leaves then, which may have a fault of its own.
    """

    faults: tuple[Fault, ...]
    moment: str = "steps"
    other: str = ""

    def __str__(self) -> str:
        when = {"checkpoint": "-checkpoint", "join": f"-{self.other}-joins"}
        when["leave"] = f"-{self.other}-leaves"
        return "-and-".join(map(str, self.faults)) + when.get(self.moment, "")

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(sorted(fault.kind for fault in self.faults))

    @property
    def is_harmless(self) -> bool:
        """Whether the case must end no group."""
        return self.moment == "steps" and HARMLESS.issuperset(self.kinds)


@dataclass(frozen=True)
class Played:
    """When a case's faults came, the step that was reached then, and the next step of all."""

    at: datetime
    before: int
    together: Step


def play(run: Assembly, case: Case, chance: random.Random, silence: float) -> Played:
    """Wait for the case's moment, inflict its faults, mend each, and wait for a step of all nodes.

    All must be training together, and `silence` seconds of it count as a loss. Raises
    AssertionError if a fault that must end no group has ended one, or if there is no such step.
    """
    generations = [run.record(node)["generation"] for node in run.names]
    end_of_moment = _begin(run, case, chance)
    time.sleep(chance.uniform(0, _MOST_INTO_A_STEP))
    at, before, began = datetime.now(UTC), run.newest(), time.monotonic()
    for fault in case.faults:
        inflict(run, fault)
    due = [(lasts(fault, silence, chance), fault) for fault in case.faults]
    for seconds, fault in sorted(due, key=lambda each: each[0]):
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        mend(run, fault)
    end_of_moment()
    together = run.until_together(max(before, run.newest()))
    if case.is_harmless:
        now = [run.record(node)["generation"] for node in run.names]
        assert now == generations, (
            f"{case} ended a group: {generations}, then {now}\n{run.log_tails()}"
        )
    return Played(at, before, together)


def _begin(run: Assembly, case: Case, chance: random.Random) -> Callable[[], None]:
    """Bring the run into the case's moment; return what ends that."""
    other = case.other
    if case.moment == "checkpoint":
        folders = [run.workspace(node) / "checkpoints/first" for node in run.names]
        soon(lambda: any([*folder.glob(".writing-*")] for folder in folders))
    elif case.moment == "join":
        run.lose(other)
        run.start(other)
        if chance.randrange(2):
            time.sleep(chance.uniform(0, _MOST_INTO_A_START))
        else:  # when it is about to be taken in
            soon(lambda: run.is_loaded(other))
            time.sleep(chance.uniform(0, 1))
    elif case.moment == "leave":
        leaving = run.supervisor(other)
        run.leave(other)

        def bring_back() -> None:
            if run.supervisor(other) is leaving:  # no fault of its own has brought it back
                leaving.wait(HANG)
                run.start(other)

        return bring_back
    return lambda: None


def soon(condition: Callable[[], object]) -> None:
    """Wait for a condition that may hold some tenths of a second only."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, f"not within {HANG} s"
        time.sleep(0.02)
