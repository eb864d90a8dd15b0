"""Agreement of the followers of one run, a process for each node, on the one that draws."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hearth.base.files import read_object, write_whole
from hearth.record.events import TeamEvent

FRESH = 8.0
"""Seconds since a node's last answer after which it no longer counts; they answer every 3 s."""

_SETTLED = 3.0
"""Seconds that a follower has to be the best before it draws: records change one by one."""

_DRAWER, _TOLD = ".drawer", ".told"


class Board:
    """The notes of all followers in `folder`, as that of `node` reads and writes them.

    The node of the newest group draws, and of its nodes the first in rank order: it has the
    metrics as they are written. When it does not answer, the next one goes on.
    """

    def __init__(self, folder: Path, node: str) -> None:
        self._folder, self._node = folder, node
        self._best_since: float | None = None

    def note(self, generation: int, rank: int, answered: float) -> None:
        """Note the node's group, its rank, and when it last answered (monotonic)."""
        text = json.dumps({"standing": [generation, -rank], "answered": answered})
        self._write(_file_name(self._node), text)

    def leave(self) -> None:
        """Forget this node, which is followed no more."""
        self._path(self._node).unlink(missing_ok=True)
        if self._drawer() == self._node:
            (self._folder / _DRAWER).unlink(missing_ok=True)

    def others_answer(self) -> bool:
        """Return whether another node of the run answers."""
        return any(name != _file_name(self._node) for name in self._fresh())

    def draws(self) -> bool:
        """Return whether this node's follower draws now."""
        now, fresh, drawer = time.monotonic(), self._fresh(), self._drawer()
        own = _file_name(self._node)
        if own not in fresh or fresh[own] < max(fresh.values()):
            self._best_since = None
            return drawer == self._node and own in fresh
        if drawer == self._node:
            return True
        self._best_since = self._best_since or now
        first = not drawer and fresh[own][1] == 0
        if not first and now - self._best_since < _SETTLED:
            return False
        self._write(_DRAWER, json.dumps({"node": self._node}))
        return True

    def not_yet_told(self, teams: Iterable[TeamEvent]) -> list[TeamEvent]:
        """Return the `teams` that no follower has shown yet; this one shows them now.

        The one that drew may be that of the node which left.
        """
        told = int((read_object(self._folder / _TOLD) or {}).get("generation", -1))
        news = [team for team in teams if team.generation > told]
        if news:
            generation = max(team.generation for team in news)
            self._write(_TOLD, json.dumps({"generation": generation}))
        return news

    def _fresh(self) -> dict[str, tuple[int, int]]:
        """Return the standing of each node that answers, by the name of its file."""
        found, since = {}, time.monotonic() - FRESH
        for path in self._folder.glob("*.json"):
            note: dict[str, Any] = read_object(path) or {}
            if note.get("answered", since) > since:
                generation, rank = note["standing"]
                found[path.name] = (int(generation), int(rank))
        return found

    def _drawer(self) -> str:
        """Return the node whose follower draws, '' without one."""
        return str((read_object(self._folder / _DRAWER) or {}).get("node", ""))

    def _path(self, node: str) -> Path:
        return self._folder / _file_name(node)

    def _write(self, name: str, text: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_whole(self._folder / name, text)


def _file_name(node: str) -> str:
    return f"{quote(node, safe='')}.json"
