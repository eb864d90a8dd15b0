"""The cards of the stand-in for NVML (`nvml_standin/pynvml.py`), as a test sets them.

    cards = StandInCards(tmp_path / "nvml.json")         # one card
    program(env=os.environ | cards.environment())        # sees it instead of real ones
    cards.add_process(4321, "/usr/bin/game", graphics=True, sm_percent=60, memory_mib=3000)

Each change is one atomic replacement of the file, so that a program that reads it meanwhile sees
the card before or after it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hearth.base.files import write_whole

FOLDER = Path(__file__).parent / "nvml_standin"

LIMITS = {"now": 300.0, "default": 300.0, "least": 100.0, "most": 350.0}


@contextmanager
def seen_cards(
    folder: Path,
    patch: pytest.MonkeyPatch,
    names: tuple[str, ...] = ("Stand-in RTX 5070 Ti",),
) -> Iterator[StandInCards]:
    """Let this process see cards that do not exist."""
    cards = StandInCards(folder / "nvml.json", names)
    patch.setenv("HEARTH_NVML_STANDIN", str(cards.file))
    patch.syspath_prepend(FOLDER)
    patch.delitem(sys.modules, "pynvml", raising=False)
    patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    try:
        yield cards
    finally:
        sys.modules.pop("pynvml", None)


class StandInCards:
    """Cards that do not exist: idle at 20 W, with no process, until a method says otherwise.

    Args:
        file: to write.
        names: of the cards.
        energy: whether they have an energy counter; it rises with the watts, as a real one.
        first: number in the first card's UUID; of two processes that measure a card one counts.
    """

    def __init__(
        self,
        file: Path,
        names: tuple[str, ...] = ("Stand-in RTX 5070 Ti",),
        energy: bool = True,
        first: int = 0,
    ) -> None:
        self.file = file
        self._cards: list[dict[str, Any]] = [
            {
                "name": name,
                "uuid": f"GPU-{first + index:08x}-stand-in",
                "watts": 20.0,
                "celsius": 45.0,
                "memory": [8188, 250, 40],
                "energy": {"joules": 1e6, "watts": 20.0, "since": time.time()} if energy else None,
                "limits": dict(LIMITS),
                "processes": [],
            }
            for index, name in enumerate(names)
        ]
        self.uuids = tuple(card["uuid"] for card in self._cards)
        self._write()

    def environment(self) -> dict[str, str]:
        """Return the variables that let a program see these cards instead of real ones.

        A supervisor hands the second on to its ranks, which then count as computing on the cards.
        """
        path = [str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
        file = str(self.file)
        return {
            "HEARTH_NVML_STANDIN": file,
            "STAND_IN_NVML": file,
            "PYTHONPATH": os.pathsep.join(path),
        }

    def add_process(
        self,
        pid: int,
        name: str,
        *,
        card: int = 0,
        graphics: bool = False,
        compute: bool | None = None,
        sm_percent: float | None = 0.0,
        memory_mib: int | None = 500,
    ) -> None:
        """Put a process on a card, or change it. It computes unless it draws, or as `compute` says.

        `sm_percent=None`, of all processes, makes a card that does not measure it.
        """
        self.remove_process(pid, card=card)
        self._cards[card]["processes"].append(
            {
                "pid": pid,
                "name": name,
                "graphics": graphics,
                "compute": not graphics if compute is None else compute,
                "sm_percent": sm_percent,
                "memory_mib": memory_mib,
            }
        )
        self._write()

    def remove_process(self, pid: int, *, card: int = 0) -> None:
        """Take a process from a card, if it is there."""
        processes = self._cards[card]["processes"]
        self._cards[card]["processes"] = [each for each in processes if each["pid"] != pid]
        self._write()

    def set_watts(self, watts: float | None, *, card: int = 0) -> None:
        """Let a card draw `watts` from now on; None: it does not tell, and its counter rests."""
        self._cards[card]["watts"] = watts
        self._count(card, watts or 0.0)

    def advance_energy(self, joules: float, *, card: int = 0) -> None:
        """Let a card's counter jump by `joules`; below 0 as after a driver was loaded again."""
        self._count(card, self._cards[card]["energy"]["watts"], joules)

    def set_limits(self, *, card: int = 0, **watts: float) -> None:
        """Change now, default, least or most of a card's power limits; no value: it has none."""
        self._cards[card]["limits"] = (
            (self._cards[card]["limits"] or LIMITS) | watts if watts else None
        )
        self._write()

    def vanish(self) -> None:
        """Let the driver be gone, until the next change."""
        self.file.unlink()

    def _count(self, card: int, watts: float, more: float = 0.0) -> None:
        """Let the counter rise with `watts` from where it is, plus `more` joules."""
        if counter := self._cards[card]["energy"]:
            now = time.time()
            joules = counter["joules"] + counter["watts"] * (now - counter["since"]) + more
            self._cards[card]["energy"] = {"joules": max(0.0, joules), "watts": watts, "since": now}
        self._write()

    def _write(self) -> None:
        write_whole(self.file, json.dumps({"cards": self._cards}))
