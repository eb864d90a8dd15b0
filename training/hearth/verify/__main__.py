"""Commands that verify a cluster. Each reads a JSON file and prints one JSON object."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from hearth.base.command import run_verb
from hearth.base.interface import free_port
from hearth.base.peers import Peer
from hearth.supervisor.record import held_by, lock_holder
from hearth.supervisor.spec import spec_of
from hearth.verify.all_reduce import all_reduce
from hearth.verify.facts import look
from hearth.verify.listener import start
from hearth.verify.pairs import talk
from hearth.verify.ports import ask
from hearth.verify.single_gpu import examine


def _look(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Gather facts and start a listener; takes `address`, `allowed` and `idle` (s)."""
    workspace = Path(os.environ["HEARTH_WORKSPACE"])
    answer = look(given["address"], workspace, given["allowed"])
    if not answer["findings"]:
        answer["facts"]["port"] = start(given["address"], given["allowed"], given["idle"])
        answer["facts"]["meeting_port"] = free_port(given["address"])
    return answer


def _talk(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Test the links to `peers` (in rank order) but the `own` node, with `speed` also bandwidth."""
    peers = [Peer(**peer) for peer in given["peers"]]
    return {"facts": dataclasses.asdict(talk(given["own"], peers, given["speed"])), "findings": []}


def _ports(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Ask all `peers` but the `own` node for their ports, and answer on its own."""
    failed = ask(given["own"], [Peer(**peer) for peer in given["peers"]])
    return {"facts": {"failed": failed}, "findings": []}


def _all_reduce(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Take part in the all-reduce of the launch spec `launch`, for at most `limit` seconds.

    `secret` is the one that the supervisors share.
    """
    own = {"workspace": os.environ["HEARTH_WORKSPACE"], "python": sys.executable}
    launch = given["launch"] | own | {"token": given["secret"]}
    return all_reduce(spec_of(launch, "the launch spec"), given["limit"])


def _single(_: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Examine this machine by itself; `install` is the command that installs its packages.

    While a run is under way here nothing is computed, since that would take its memory.
    """
    workspace = Path(os.environ["HEARTH_WORKSPACE"])
    if holder := lock_holder(workspace):
        return {"findings": [held_by(workspace, holder)]}
    examined = examine(workspace, given["install"])
    return {"facts": {"status": examined.status, **dataclasses.asdict(examined)}}


if __name__ == "__main__":
    verbs = {"look": _look, "talk": _talk, "ports": _ports, "all-reduce": _all_reduce}
    sys.exit(run_verb(verbs | {"single": _single}))
