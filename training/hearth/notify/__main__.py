"""The commands of this package: `check` for the play, `send` for a node's supervisor.

`send` reads a JSON object with `urls` and `event` from its standard input, and prints a line for
each address.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from hearth.base.entry import run_verb
from hearth.base.files import tail
from hearth.diagnose.catalogue import explanation
from hearth.notify.event import Event
from hearth.notify.messages import compose
from hearth.notify.outbox import TIMEOUT
from hearth.notify.send import deliver, faults
from hearth.record.story import read_story

MARGIN = 3.0
"""Seconds of the supervisor's timeout for the start of this process."""

LOG_TAIL = 1 << 20
"""Bytes at the end of a log that are searched."""


def check(_: Path | None, spec: dict[str, Any]) -> dict[str, list[str]]:
    """Return a finding for each address in `secret` that cannot be used."""
    found = faults(str(spec.get("secret") or "").split())
    return {"findings": [f"hearth_notify: {fault} (docs/runs.md)" for fault in found]}


def send() -> int:
    """Send the message that standard input asks for."""
    request = json.load(sys.stdin)
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in request["event"].items()
    }
    event = Event(**given)
    log = _tail(Path(event.log)) if event.log else ""
    # Without the log it is not known whether Hearth itself raised the error, and named the cure.
    explained = explanation(event.message, log, event.by_rank and bool(log))
    message = compose(event, read_story(Path(event.results), skim=True), explained)
    print(*deliver(request["urls"], message, TIMEOUT - MARGIN), sep="\n", flush=True)
    os._exit(0)  # a thread may still wait for its server


def _tail(log: Path) -> str:
    """Return the last part of a log, '' if it cannot be read."""
    try:
        return tail(log, LOG_TAIL)
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(send() if sys.argv[1:] == ["send"] else run_verb({"check": check}))
