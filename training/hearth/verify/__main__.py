"""Commands that verify a cluster. Each reads a JSON file and prints one JSON object."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.supervise.interface import free_port
from hearth.supervise.spec import spec_of
from hearth.verify.all_reduce import all_reduce
from hearth.verify.facts import look
from hearth.verify.listener import start
from hearth.verify.pairs import Peer, talk


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return the exit status: 0, or 2 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m hearth.verify", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for name, verb, text in (
        ("look", _look, "say what this node is; answer the other nodes for a while"),
        ("talk", _talk, "speak with every other node"),
        ("all-reduce", _all_reduce, "sum something across all nodes"),
    ):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.add_argument("--spec", type=Path, required=True, help="what to do (JSON)")
        sub.set_defaults(verb=verb)
    given = parser.parse_args(arguments)
    try:
        answer: dict[str, Any] = given.verb(json.loads(given.spec.read_text()))
    except HearthError as error:
        answer = {"facts": {}, "findings": error.findings}
    print(json.dumps(answer))
    return 2 if answer["findings"] else 0


def _look(given: dict[str, Any]) -> dict[str, Any]:
    """Gather facts and start a listener; takes `address`, `allowed` and `idle` (s)."""
    answer = look(given["address"], Path(os.environ["HEARTH_WORKSPACE"]))
    if not answer["findings"]:
        answer["facts"]["port"] = start(given["address"], given["allowed"], given["idle"])
        answer["facts"]["meeting_port"] = free_port(given["address"])
    return answer


def _talk(given: dict[str, Any]) -> dict[str, Any]:
    """Test the links to `peers` (in rank order) but the `own` node, with `speed` also bandwidth."""
    peers = [Peer(**peer) for peer in given["peers"]]
    return {"facts": dataclasses.asdict(talk(given["own"], peers, given["speed"])), "findings": []}


def _all_reduce(given: dict[str, Any]) -> dict[str, Any]:
    """Take part in the all-reduce of the launch spec `launch`, for at most `limit` seconds.

    `secret` is the one that the supervisors share.
    """
    own = {"workspace": os.environ["HEARTH_WORKSPACE"], "python": sys.executable}
    launch = given["launch"] | own | {"token": given["secret"]}
    return all_reduce(spec_of(launch, "the launch spec"), given["limit"])


if __name__ == "__main__":
    sys.exit(main())
