"""Detects ranks that hang: each reports its work and a timeout to its supervisor. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from hearth.ranks.control_protocol import Doing, Form, Interrupt, Leave, LoadAlone

LEAST = 20.0
"""Seconds that any piece of work may take, whatever was expected of it."""

FORMING = 60.0
"""Seconds until a rank begins what follows the order to load, to end or to form a group, or a new
group.

Its own timeout for a group is 30.
"""

STARTING = 600.0
"""Seconds from the start of torchrun until each rank has told that it is there."""

SILENT = 120.0
"""Seconds without a sign of life after which a rank hangs, however long its work may take.

A library may hold Python's lock for some seconds, as while it compiles a kernel.
"""

ENDING = 120.0
"""Seconds from the last word of a rank to the end of torchrun, which gives its other ranks 30."""


@dataclass
class _Work:
    what: str
    since: float
    allowed: float
    """Seconds; 0: no bound."""

    heard: float
    """Time of the last sign of life."""

    @property
    def due(self) -> float:
        """Time when the rank counts as hanging."""
        return min(self.since + self.allowed, self.heard + SILENT)


class HangWatch:
    """Finds the rank of a node that does one thing for too long.

    Args:
        node: name of the node.
        first_rank: number of its first rank in the run.
    """

    def __init__(self, node: str, first_rank: int) -> None:
        self._node = node
        self._first_rank = first_rank
        self._work: dict[int, _Work] = {}

    def started(self, local_rank: int, now: float) -> None:
        """Note that a rank was started, which tells nothing until it is there."""
        self._work[local_rank] = _Work("its start", now, STARTING, now + STARTING)

    def began(self, local_rank: int, doing: Doing, now: float) -> None:
        """Note that a rank began a piece of work at the time `now`, in seconds."""
        what = f"step {doing.step}, {doing.what}" if doing.step else doing.what
        if doing.part:
            what += f" {doing.part}"
        allowed = max(LEAST, doing.allowed) if doing.allowed else 0.0
        self._work[local_rank] = _Work(what, now, allowed, now)

    def alive(self, local_rank: int, now: float) -> None:
        """Note a sign of life of a rank, at any work."""
        if work := self._work.get(local_rank):
            work.heard = now

    def ordered(
        self, local_rank: int, order: LoadAlone | Form | Interrupt | Leave, now: float
    ) -> None:
        """Note an order that a rank has to follow soon.

        A rank that waits for others must come out of its group at once when that is interrupted;
        one at work of its own comes out when it is done.
        """
        work = self._work.get(local_rank)
        match order:
            case LoadAlone():
                self._work[local_rank] = _Work("the order to load", now, FORMING, now)
            case Leave():
                self._work[local_rank] = _Work("the order to end", now, FORMING, now)
            case Form(generation):
                what = f"forming the group of generation {generation}"
                self._work[local_rank] = _Work(what, now, FORMING, now)
            case Interrupt() if work and not work.allowed:
                what = f"{work.what}, after its group was interrupted"
                self._work[local_rank] = _Work(what, now, LEAST, now)

    def formed(self, local_rank: int, now: float) -> None:
        """Note that a rank is in its group, and begins its first piece of work there soon."""
        self._work[local_rank] = _Work("its first work in the group", now, FORMING, now)

    def left(self, local_rank: int, now: float) -> None:
        """Note that a rank has ended, or is about to, so that torchrun ends soon."""
        self._work[local_rank] = _Work("exiting, not yet reported by torchrun", now, ENDING, now)

    def rested(self, local_rank: int) -> None:
        """Note that a rank does nothing that is bounded in time."""
        self._work.pop(local_rank, None)

    def clear(self) -> None:
        """Forget the work of all ranks."""
        self._work.clear()

    def slept(self, seconds: float) -> None:
        """Note that the machine, or this process, was suspended for `seconds`."""
        for work in self._work.values():
            work.since += seconds
            work.heard += seconds

    def hanging(self, now: float) -> tuple[int, str] | None:
        """Return the rank of the run that hangs, and a sentence that says so; None without one.

        Of several, the one that began first: the others may wait for it.
        """
        for local_rank, work in sorted(self._work.items(), key=lambda item: item[1].since):
            if work.allowed and now > work.due:
                rank, seconds = self._first_rank + local_rank, now - work.since
                given = f"was given {work.allowed:.0f} s"
                if seconds <= work.allowed:
                    given = f"has given no sign of life for {now - work.heard:.0f} s"
                return rank, (
                    f"rank {rank} of {self._node} did nothing for {seconds:.0f} s in {work.what}: "
                    f"it hangs, as a stuck driver or a dead network disk makes it (it {given})"
                )
        return None
