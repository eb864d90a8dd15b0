"""Measure how soon the split follows a machine that slows down to half, on the lab.

    sudo .venv/bin/python -m tests.bench.follow

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
Each trains for itself, at the same time as the others; then all train together, and one of them is
halved on the way; then each for itself again, that one with half its share. It takes a quarter of
an hour on two cores, on which nothing else should run.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.bench.cluster import UNEQUAL
from tests.bench.command import Bench, at_least, turns
from tests.bench.follow.report import table
from tests.bench.heterogeneous.__main__ import SKIPPED, Machines
from tests.bench.lab import CommandFailed

VICTIM = "laptop"
ALONE_STEPS = 20
HALVED_AFTER = 10
"""Steps after which the machine is halved."""


def speed_while_halving(machines: Machines, steps: int) -> dict[str, Any]:
    """Train on all, and halve one of them on the way; return as `speed`, and in which step."""
    run, leader = machines.next_run(), machines.names[0]
    record = f"/home/lab/ai-cluster/results/{run}/metrics.jsonl"

    def done() -> int:
        return int(machines.inside(leader, "grep", "--count", '"kind": "step"', record) or 0)

    halved: list[int] = []

    def halve() -> None:
        machines.share(VICTIM, machines.shares[VICTIM] / 2)
        halved.append(done() + 1)

    with machines.once(lambda: done() >= HALVED_AFTER, halve):
        figures = machines.speed(machines.names, steps)
    machines.share(VICTIM, machines.shares[VICTIM])
    if halved[0] > steps:
        raise CommandFailed(f"{run} was over before {VICTIM} was halved")
    return figures | {"halved_during": halved[0]}


def sitting(machines: Machines, steps: int, repeat: int) -> dict[str, Any]:
    """Return the figures of each kind of run, repeats in a list."""
    found: dict[str, Any] = {"alone": [], "together": [], "halved": []}
    full = machines.shares[VICTIM]
    with machines.up_and_ready():
        machines.speed(machines.names, SKIPPED + 1)  # in which each measures itself
        for _ in turns(repeat):
            found["alone"].append(machines.alone(ALONE_STEPS))
            found["together"].append(speed_while_halving(machines, steps))
            machines.shares[VICTIM] = full / 2
            found["halved"].append(machines.alone(ALONE_STEPS))
            machines.shares[VICTIM] = full
            machines.share(VICTIM, full)
    return found


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of the sitting."""
    found = sitting(Machines(folder, UNEQUAL), given.steps, given.repeat)
    return {"shares": UNEQUAL, "victim": VICTIM, "skipped": SKIPPED, **found}


if __name__ == "__main__":
    bench = Bench("follow", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    enough = at_least(HALVED_AFTER + 8, f"some must be left after step {HALVED_AFTER}")
    bench.option("--steps", type=enough, default=26, help="of the run together (default: 26)")
    bench.run(measure)
