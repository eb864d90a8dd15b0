"""Measure whether two ranks of gloo meet at IPv6 link-local addresses, and what fails if not.

    python -m tests.bench.link_local

joins two network namespaces by a cable (veth) and starts a rank in each: a TCPStore, a process
group of gloo, an all-reduce. An fe80:: address holds for one interface only, which each machine
knows by a number of its own: once that is the same on both sides, once not. For comparison, fd00::
addresses beside fe80:: ones. It needs root and `ip`, and takes half a minute.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from tests.bench.command import Bench
from tests.bench.lab import ROOT, CommandFailed
from tests.bench.paper import measured

CABLE = "cable"
"""Name of the interface on both sides."""
WAYS = (
    (("fe80::",), (7, 7)),
    (("fe80::",), (7, 8)),
    (("fd00::", "fe80::"), (7, 8)),
)
"""Prefixes of the addresses (the store has the first), and the interface's number on each side."""
LONGEST = 60
"""A rank that takes these seconds counts as hung; the store and gloo give up after 10."""


def ip(*words: object) -> None:
    """Call `ip`; raise `CommandFailed` with its error if it has one."""
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise CommandFailed(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")


@contextmanager
def joined(prefixes: Sequence[str], numbers: tuple[int, int]) -> Iterator[list[str]]:
    """Yield two namespaces with a cable, whose ends have the addresses 1 and 2 of each prefix."""
    spaces = [f"hearth-{os.getpid()}-{side}" for side in (1, 2)]
    with ExitStack() as stack:
        for space in spaces:
            ip("netns", "add", space)
            stack.callback(ip, "netns", "del", space)
        one, other = (
            (CABLE, "index", number, "netns", space)
            for number, space in zip(numbers, spaces, strict=True)
        )
        ip("link", "add", *one, "type", "veth", "peer", "name", *other)
        for side, space in enumerate(spaces, 1):
            ip("-n", space, "link", "set", CABLE, "addrgenmode", "none")
            for name in ("lo", CABLE):
                ip("-n", space, "link", "set", name, "up")
            for prefix in prefixes:
                # Without nodad the address could not be used for a second or two.
                ip("-n", space, "address", "add", f"{prefix}{side}/64", "dev", CABLE, "nodad")
        yield spaces


def meet(prefix: str, spaces: list[str]) -> list[dict[str, str]]:
    """Start a rank in each namespace; return the stage that each reached, and its error."""
    store = f"{prefix}1%{CABLE}" if prefix == "fe80::" else f"{prefix}1"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": CABLE}
    program = (sys.executable, "-m", "tests.bench.link_local.rank")
    ranks = [
        subprocess.Popen(
            ["ip", "netns", "exec", space, *program, str(number), store],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, space in enumerate(spaces)
    ]
    try:
        said = [rank.communicate(timeout=LONGEST) for rank in ranks]
    except subprocess.TimeoutExpired:
        raise CommandFailed(f"a rank at {store} has not ended after {LONGEST} s") from None
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [
        {
            "reached": (out.splitlines() or ["nothing"])[-1],
            "error": err.strip().splitlines()[-1] if rank.returncode else "",
        }
        for rank, (out, err) in zip(ranks, said, strict=True)
    ]


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the stage and the error of both ranks in each way."""
    found = []
    for prefixes, numbers in WAYS:
        with joined(prefixes, numbers) as spaces:
            ranks = meet(prefixes[0], spaces)
        found.append({"addresses": prefixes, "numbers": numbers, "ranks": ranks})
    return {"torch": torch.__version__, "ways": found}


def outcome(rank: Mapping[str, str]) -> str:
    """Return a cell on how far a rank came."""
    if not rank["error"]:
        return rank["reached"]
    # The places in Gloo's source are of no use to a reader.
    error = re.sub(r"\[[^\[\]]*/gloo/\S+\] ?", "", rank["error"])
    return f"{rank['reached']}, then `{error}`"


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of tests/bench/README.md."""
    lines = [
        f"Two network namespaces joined by a veth, torch {figures['torch']}. {measured(figures)} "
        "Where each rank ended.",
        "",
        "| addresses | number of the interface | rank 0 | rank 1 |",
        "|---|---|---|---|",
    ]
    for way in figures["ways"]:
        addresses = " and ".join(f"`{prefix}`" for prefix in way["addresses"])
        numbers = " and ".join(map(str, way["numbers"]))
        cells = " | ".join(map(outcome, way["ranks"]))
        lines.append(f"| {addresses} | {numbers} | {cells} |")
    return "\n".join(lines)


if __name__ == "__main__":
    Bench("link_local", __doc__, table).run(measure)
