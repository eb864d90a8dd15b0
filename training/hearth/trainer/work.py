"""Reports of this rank's work to its supervisor, which ends a rank that hangs.

Each piece of work is announced with the seconds that it may take: several times those that the
slowest earlier piece of its kind took, in proportion to its tokens. At each micro-batch the rank
also notices whether its group is over.

A thread tells every few seconds that the process lives: one that was stopped tells nothing. How
long a rank waits for the others says nothing of itself, so a waiting rank reports only that, until
the group is over.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Hashable

import numpy as np

from hearth.plan.speed import UNKNOWN, Speed
from hearth.ranks.control_protocol import FOR_OTHERS, Alive, Doing
from hearth.ranks.control_protocol import OPTIMIZER as OPTIMIZER
from hearth.ranks.world import World

_TIMES = 10.0
"""Multiple of the slowest time so far that is no hang: others may use the machine too."""

_LEAST = 20.0
"""Seconds that any piece of work may take."""

_UNKNOWN = 900.0
"""Seconds for a kind of work that this process has hardly done: kernels are compiled for it."""

_WARM = 2
"""Pieces of a kind whose time says nothing, since they may include a compilation."""


_BEAT = 5.0
"""Seconds between two signs of life."""


class Allowances:
    """The seconds that pieces of work may take, learned from earlier ones of their kind."""

    def __init__(self) -> None:
        self._counts: Counter[Hashable] = Counter()
        self._slowest: dict[Hashable, float] = {}

    def allowed(self, kind: Hashable, amount: float, expected: float = 0.0) -> float:
        """Return the most seconds for a piece of this kind and amount.

        `expected` are its seconds as they were measured before the run, 0 if they were not.
        """
        if kind not in self._slowest:
            return max(_UNKNOWN, _TIMES * expected)
        return max(_LEAST, _TIMES * self._slowest[kind] * amount)

    def observe(self, kind: Hashable, amount: float, seconds: float) -> None:
        """Note that a piece of this kind and amount took `seconds`."""
        self._counts[kind] += 1
        if self._counts[kind] > _WARM:
            self._slowest[kind] = max(self._slowest.get(kind, 0.0), seconds / amount)


class Work:
    """Announces this rank's pieces of work; does nothing without a supervisor that listens.

    `speed` is the measured one of this rank.

    Attributes:
        step: the number of the step that the rank is in, from 1.
    """

    def __init__(self, world: World, speed: Speed = UNKNOWN) -> None:
        self._world, self._speed = world, speed
        self._allowances = Allowances()
        # A GPU works on several micro-batches behind the back of Python.
        self._apart = world.device.type == "cpu"
        self._open: tuple[set[Hashable], float] | None = None
        self._waits_since: float | None = None
        self._started = 0.0
        self._works, self._waits = threading.Event(), False
        self._telling = threading.Lock()
        self._beating: threading.Thread | None = None
        self.step = 0

    def begin_rows(self, what: str, part: int, tokens: np.ndarray) -> None:
        """Begin the micro-batch number `part` of rows with these `tokens`.

        Raises `GroupBroken` if the group is over.
        """
        if not self._world.supervisor:
            return
        self._world.check()
        kind = (what, len(tokens))
        # Padded to the longest row.
        kinds, amount = {kind}, float(max(1, len(tokens) * int(tokens.max(initial=0))))
        if self._open and part and not self._apart:
            kinds, amount = kinds | self._open[0], amount + self._open[1]
        else:
            self._close()
            self._started = time.monotonic()
        self._open = kinds, amount
        expected = self._speed.of_rows(len(tokens))
        allowed = (self._allowances.allowed(each, amount, expected) for each in kinds)
        self._tell(what, part, max(allowed))

    def begin(self, what: str, seconds: float | None = None) -> None:
        """Begin a piece of work that may take `seconds`; None to learn it from earlier ones.

        It does not need the group.
        """
        if not self._world.supervisor:
            return
        self._close()
        self._open, self._started = ({what}, 1.0), time.monotonic()
        self._tell(what, 0, seconds or self._allowances.allowed(what, 1.0))

    @property
    def idle_since(self) -> float:
        """Time since which this rank waits for others; now, if it does not."""
        return time.monotonic() if self._waits_since is None else self._waits_since

    def wait(self) -> None:
        """Begin to wait for the other ranks."""
        if not self._world.supervisor:
            return
        self._close()
        self._waits_since = self.idle_since
        self._tell(FOR_OTHERS, 0, _LEAST, waits=True)

    def abandon(self) -> None:
        """Forget the piece that was begun, whose end will not come, and end waiting."""
        with self._telling:  # else a sign of life could still follow the next message
            self._works.clear()
        self._open = self._waits_since = None

    def _close(self) -> None:
        """Learn from the piece that ends now."""
        if self._open:
            kinds, amount = self._open
            for kind in kinds:
                self._allowances.observe(kind, amount, time.monotonic() - self._started)
        self._open = None

    def _tell(self, what: str, part: int, allowed: float, waits: bool = False) -> None:
        """Tell the supervisor of a piece of work, or that this rank waits for the others."""
        if not waits:
            self._waits_since = None
        with self._telling:
            self._waits = waits
            self._world.supervisor.tell(Doing(what, self.step, part, round(allowed, 1)))
            self._works.set()
        if not self._beating:
            self._beating = threading.Thread(target=self._beat, name="beat", daemon=True)
            self._beating.start()

    def _beat(self) -> None:
        """Tell again and again that this process lives, while it works or waits."""
        control = self._world.supervisor
        while True:
            self._works.wait()
            time.sleep(_BEAT)
            with self._telling:
                if not self._works.is_set():
                    continue
                if not self._waits:
                    control.tell(Alive())
                elif not control.is_over(self._world.generation):
                    receives = self._world.receives
                    control.tell(Doing(FOR_OTHERS, self.step, 0, _LEAST, *receives))
