"""Measure how soon the split follows a machine that slows down to half, on the lab.

    sudo .venv/bin/python -m tests.bench.follow

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
Each trains for itself, at the same time as the others; then all train together, and one of them is
halved on the way; then each for itself again, that one with half its share. It writes the raw
figures beside itself and the table into docs/benchmarks.md. It takes a quarter of an hour on two
cores, on which nothing else should run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench.cluster import UNEQUAL
from tests.bench.follow.report import table
from tests.bench.heterogeneous.__main__ import SKIPPED, Bench
from tests.bench.lab import CommandFailed
from tests.bench.paper import circumstances, publish

FIGURES = Path(__file__).with_name("figures.json")
VICTIM = "laptop"
ALONE_STEPS = 20
HALVED_AFTER = 10
"""Steps after which the machine is halved."""


def speed_while_halving(bench: Bench, steps: int) -> dict[str, Any]:
    """Train on all, and halve one of them on the way; return as `speed`, and in which step.

    Raises `CommandFailed` if they did not train for so long.
    """
    run, leader = bench.next_run(), bench.names[0]
    record = f"/home/lab/ai-cluster/results/{run}/metrics.jsonl"

    def done() -> int:
        return int(bench.inside(leader, "grep", "--count", '"kind": "step"', record) or 0)

    halved: list[int] = []

    def halve() -> None:
        bench.share(VICTIM, bench.shares[VICTIM] / 2)
        halved.append(done() + 1)

    with bench.once(lambda: done() >= HALVED_AFTER, halve):
        figures = bench.speed(bench.names, steps)
    bench.share(VICTIM, bench.shares[VICTIM])
    if halved[0] > steps:
        raise CommandFailed(f"{run} was over before {VICTIM} was halved")
    return figures | {"halved_during": halved[0]}


def sitting(bench: Bench, steps: int, repeat: int) -> dict[str, Any]:
    """Return the figures of each kind of run, repeats in a list."""
    found: dict[str, Any] = {"alone": [], "together": [], "halved": []}
    full = bench.shares[VICTIM]
    with bench.up_and_ready():
        bench.speed(bench.names, SKIPPED + 1)  # in which each measures itself
        for turn in range(repeat):
            found["alone"].append(bench.alone(ALONE_STEPS))
            found["together"].append(speed_while_halving(bench, steps))
            bench.shares[VICTIM] = full / 2
            found["halved"].append(bench.alone(ALONE_STEPS))
            bench.shares[VICTIM] = full
            bench.share(VICTIM, full)
            print(f"bench: {turn + 1} of {repeat} turns", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.follow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    parser.add_argument(
        "--steps", type=int, default=26, help="steps of the run together (default: 26)"
    )
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("the lab needs root")
    if given.steps < HALVED_AFTER + 8:
        parser.error(f"after step {HALVED_AFTER} some steps must be left: at least 8")
    # Not below /tmp, which a machine has for itself.
    with tempfile.TemporaryDirectory(prefix="hearth-bench-", dir="/var/tmp") as folder:
        try:
            found = sitting(Bench(Path(folder), UNEQUAL), given.steps, given.repeat)
        except CommandFailed as error:
            print(f"bench: a run failed: {error}", file=sys.stderr)
            return 1
    figures = circumstances() | {
        "shares": UNEQUAL,
        "victim": VICTIM,
        "skipped": SKIPPED,
        **found,
    }
    print(table(figures))
    if not given.dry:
        publish("follow", figures, FIGURES, table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
