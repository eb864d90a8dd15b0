"""The commands of this package: `check` before a run, `finish` after it, `again` for a person.

`check` and `finish` do what the settings in the run file ask for; `again` does what its spec asks
for, of the run that it names, and holds the node meanwhile if that computes anything.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from hearth.base.command import run_verb
from hearth.base.errors import ConfigError
from hearth.config import read_run
from hearth.config.find import find_run
from hearth.config.layout import Layout
from hearth.share import after
from hearth.share.request import Request, by_command
from hearth.supervisor.record import node_lock


def check(run_file: Path, _: dict[str, Any]) -> dict[str, Any]:
    """Find whatever would be in the way once the run in `run_file` has finished."""
    run = read_run(run_file)
    after.check(Request.from_settings(run.settings), run, print)
    return {}


def finish(run_file: Path, spec: dict[str, Any]) -> dict[str, Any]:
    """Do what the run asks for whose `run_file` is in its folder.

    The spec has the `hearth` command for the run's inventory, for messages.
    """
    # An exit, which is recorded, as the end by a signal is not.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    run = read_run(run_file)
    again = by_command(spec["hearth"], run.name)
    request = Request.from_settings(run.settings)
    return {"facts": {"done": after.afterwards(run_file.parent, request, again, print)}}


def again(_: Path | None, spec: dict[str, Any]) -> dict[str, Any]:
    """Do the `words` of a request for a `run` of this node; return that something `changed`.

    Raises `ConfigError` with whatever was not done.
    """
    given = {_PARAMETERS.get(name, name): text for name, text in spec["words"].items() if text}
    request = Request.typed(**given)
    folder = find_run(spec["run"], Layout.from_environment().results)
    run = read_run(folder / "run.yml")
    after.check_finished(folder, request, print)
    workspace = os.environ.get("HEARTH_WORKSPACE")
    computes = request.tasks and workspace
    with node_lock(Path(workspace), run.name) if computes else nullcontext():
        failed: list[str] = []

        def say(line: str) -> None:
            print(line)
            failed.append(line)

        if not after.afterwards(folder, request, by_command(spec["hearth"], run.name), say):
            raise ConfigError(*failed[-2:])
    return {"facts": {"changed": True}}


_PARAMETERS = {"eval": "tasks", "eval_limit": "limit"}
"""Parameters of `Request.typed` by the settings that have other names."""

if __name__ == "__main__":
    sys.exit(run_verb({"check": check, "finish": finish, "again": again}))
