"""The person's word on lending, in lend.json in the node's workspace.

`off` keeps the node away from runs, `on` lends it despite all else, and `auto`, which is the
same as no file, leaves it to the node's terms.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from hearth.base.files import read_object, write_whole
from hearth.base.places import LENDING

OFF, ON, AUTO = "off", "on", "auto"
WORDS = (OFF, ON, AUTO)

RETURNS = "it returns as soon as its ranks have loaded the model, as at the start of the run"
"""The clause on a node that is away and that a person has just switched on."""


@dataclass(frozen=True)
class LendChoice:
    """A person's choice since a time, up to `until` (None: for ever); times are aware.

    `trouble` is the reason why a broken file counts as `off`.
    """

    word: str = AUTO
    since: datetime | None = None
    until: datetime | None = None
    trouble: str = ""

    def at(self, now: datetime) -> str:
        """Return the word that holds at a time: `auto` from `until` on."""
        return AUTO if self.until and now.timestamp() >= self.until.timestamp() else self.word


def choice_file(workspace: Path) -> Path:
    """Return the file with the person's word."""
    return workspace / LENDING


def read(workspace: Path) -> LendChoice:
    """Return the person's word on this node; a broken file counts as `off`.

    The person's choice is then unknown, and the owner comes first.
    """
    path = choice_file(workspace)
    if not path.exists():
        return LendChoice()
    given = read_object(path)
    try:
        if given is None or given["lend"] not in WORDS:
            raise ValueError
        return LendChoice(given["lend"], _time(given.get("since")), _time(given.get("until")))
    except (KeyError, TypeError, ValueError):
        return LendChoice(OFF, trouble=f"{path} cannot be read: `hearth-lend auto` writes it anew")


def write(workspace: Path, choice: LendChoice) -> None:
    """Write the person's word atomically; `auto` removes the file. Raises `OSError`."""
    path = choice_file(workspace)
    if choice.word == AUTO:
        path.unlink(missing_ok=True)
        return
    content = {
        "lend": choice.word,
        "since": choice.since and choice.since.isoformat(timespec="seconds"),
        "until": choice.until and choice.until.isoformat(timespec="seconds"),
    }
    write_whole(path, json.dumps(content, indent=1) + "\n")


def _time(text: str | None) -> datetime | None:
    """Return the aware time of an ISO 8601 text. Raises `ValueError` or `TypeError`."""
    if text is None:
        return None
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    return found
