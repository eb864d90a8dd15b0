"""Nodes with a card each for a game: the sensors see it, and no command says so.

A stand-in of NVML has the cards (support/nvml.py). The games and the ranks are real processes,
which compute on the processor; the card shows a rank once it trains.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from typing import Any

from support.assembly import Assembly, Step
from support.nvml import FOLDER, StandInCards
from support.programs import stand_in
from support.supervisors import TRAINING
from support.waiting import HANG

GAME = "supertuxkart"

QUIET = 0.02
"""Minutes without a game before a node returns."""


class Gamers(Assembly):
    """Nodes that lend while no game runs."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, lend={"when": "idle", "after": QUIET}, **settings)
        folder = self.workspace(self.names[0]).parent
        self._game = stand_in(folder / GAME, "exec sleep 1000")
        self._games: dict[str, subprocess.Popen[bytes]] = {}
        self._cards = {
            # No test in another process has this card.
            node: StandInCards(folder / f"{node}.nvml.json", first=(os.getpid() << 4) + number)
            for number, node in enumerate(self.names)
        }
        for node, cards in self._cards.items():
            there = json.loads(self.spec(node).read_text())["environment"]
            self.change(node, environment=there | {"HEARTH_NVML_STANDIN": str(cards.file)})
        self.variables["PYTHONPATH"] = f"{TRAINING}:{FOLDER}"

    def want(self, node: str) -> None:
        """Start a game on a node."""
        self._games[node] = game = subprocess.Popen([self._game])
        self._cards[node].add_process(
            game.pid, f"/usr/games/{GAME}", graphics=True, sm_percent=60, memory_mib=3000
        )

    def let_go(self, node: str) -> None:
        """Let the game on a node be over."""
        game = self._games.pop(node)
        game.kill()
        game.wait(HANG)
        self._cards[node].remove_process(game.pid)

    def until_together(self, after: int = 0, nodes: Sequence[str] | None = None) -> Step:
        """Wait as `Assembly` does, then have the cards show the ranks that train."""
        step = super().until_together(after, nodes)
        for node in nodes or self.names:
            self._cards[node].add_process(
                self.rank(node).pid, "/usr/bin/python3", sm_percent=95, memory_mib=6000
            )
        return step

    def close(self) -> None:
        """End all games, too."""
        for node in [*self._games]:
            self.let_go(node)
        super().close()
