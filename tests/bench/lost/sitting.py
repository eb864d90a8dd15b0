"""One run that the bench disturbs: each case, its cost for the others, and the result."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

from support.assembly import Assembly, Pace
from support.cables import Cables
from support.losses import Case, Played, play
from support.waiting import until

from tests.bench.lab import CommandFailed

NODES = 3
NAMES = tuple(f"node{number}" for number in range(NODES))
PACE = Pace(load=1.0, row=0.1, disk=0.3)
SILENCE = 6.0
"""Seconds of silence that count as a loss: as it ships."""

_CLEAR = 10
"""Steps at most between two cases."""


class Sitting:
    """One run, which `play` disturbs and `compare` ends."""

    def __init__(self, folder: Path, work: dict[str, Any], chance: random.Random) -> None:
        self._chance, self._folder = chance, folder
        self._cables = Cables(NAMES)
        try:
            self._run = Assembly(
                folder / "run", work, NODES, PACE, self._cables, disks=True, silence_timeout=SILENCE
            )
        except BaseException:
            self._cables.close()
            raise
        self._run.start()
        self._together = 0

    def play(self, case: Case) -> dict[str, Any]:
        """Play a case; return its cost. Raises `CommandFailed` if the run hangs or fails."""
        run = self._run
        try:
            begin = run.until_together(self._together).number + self._chance.randrange(_CLEAR)
            until(lambda: run.newest() >= begin)
            played = play(run, case, self._chance, SILENCE)
            self._together = played.together.number
        except AssertionError as error:
            raise CommandFailed(f"{case}: {error}") from error
        return {
            "faults": [[fault.kind, fault.node] for fault in case.faults],
            "moment": case.moment,
            "other": case.other,
            "step": played.before,
            "seconds_until_on": self._until_on(case, played),
            "seconds_until_together": _since(played, played.together.time),
        }

    def compare(self) -> dict[str, float]:
        """Stop the run; return how far it is from what one process learns."""
        try:
            self._run.end()
            return self._run.differences(self._folder)
        except AssertionError as error:
            raise CommandFailed(str(error)) from error

    def close(self) -> None:
        self._run.close()
        self._cables.close()

    def _until_on(self, case: Case, played: Played) -> float | None:
        """Return the seconds until a step of exactly the nodes without a fault.

        None if there was none, as where too few are left or a fault ends no group.
        """
        lost = {fault.node for fault in case.faults} | {case.other}
        others = [node for node in NAMES if node not in lost]
        times = [
            seconds
            for node in others
            for step in self._run.steps(node, 1 << 18)
            if {name for name, rows in zip(NAMES, step.rows, strict=True) if rows} == {*others}
            if (seconds := _since(played, step.time)) > 0
        ]
        return min(times, default=None)


def _since(played: Played, moment: str) -> float:
    """Return the seconds from a case's faults to a moment (ISO 8601)."""
    return (datetime.fromisoformat(moment) - played.at).total_seconds()
