"""Measure how soon the split follows a machine that slows down to half, on the lab.

    sudo .venv/bin/python -m tests.bench.follow

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
Each trains for itself, at the same time as the others; then all train together, and one of them is
halved on the way; then each for itself again, that one with half its share. It takes a quarter of
an hour on two otherwise idle cores.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cluster import UNEQUAL
from tests.bench.command import Bench, at_least, turns
from tests.bench.heterogeneous.__main__ import SKIPPED, Machines
from tests.bench.lab import CommandFailed
from tests.bench.paper import aim, measured

VICTIM = "laptop"
ALONE_STEPS = 20
HALVED_AFTER = 10
"""The machine is halved after these steps."""

OF_THE_SUM = 0.93
WITHIN = 5
"""Steps that the split has to follow in."""


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
    found = sitting(Machines(folder, UNEQUAL), given.steps, given.repeat)
    return {"shares": UNEQUAL, "victim": VICTIM, "skipped": SKIPPED, **found}


def total(alone: Mapping[str, Mapping[str, Any]]) -> float:
    return sum(its["tokens_per_second"] for its in alone.values())


def before_and_after(run: Mapping[str, Any], skipped: int) -> tuple[list[float], list[float]]:
    """Return tokens/s of the steps before one machine was halved, and of those wholly after it.

    The step under way when it was halved is in neither. `skipped` steps are not on record.
    """
    speeds = [step["tokens_per_second"] for step in run["steps"]]
    at = run["halved_during"] - 1 - skipped
    return speeds[:at], speeds[at + 1 :]


def steps_until(speeds: Sequence[float], wanted: float) -> int | None:
    """Return the number of steps before the first as fast as `wanted`; None if no step was."""
    return next((taken for taken, each in enumerate(speeds) if each >= wanted), None)


def table(figures: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
    lines = [
        "Emulated: machines of the lab with a share of a core each, CPU, gloo, links of 1 Gbit/s. "
        f"{measured(figures)} Shares: {shares}; {figures['victim']} is halved while they train. "
        "The sums are of the nodes that train for themselves at the same time, right before and "
        "after. Medians of steps; a step under way when the machine is halved is not counted.",
        "",
        "| run | sum, tokens/s | new sum | before, of the sum | "
        f"first {WITHIN} steps after, of the new sum | later | "
        f"steps until {OF_THE_SUM} of the new sum |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    reached = []
    runs = zip(figures["together"], figures["alone"], figures["halved"], strict=True)
    for number, (run, alone, halved) in enumerate(runs, 1):
        before, after = before_and_after(run, figures["skipped"])
        full, new = total(alone), total(halved)
        reached.append(median(after[WITHIN:]) / new)
        taken = steps_until(after, OF_THE_SUM * new)
        lines.append(
            f"| {number} | {full:.0f} | {new:.0f} | {median(before) / full:.2f} "
            f"| {median(after[:WITHIN]) / new:.2f} | {reached[-1]:.2f} "
            f"| {'never' if taken is None else taken} |"
        )
    part = median(reached)
    words = f"Back at {OF_THE_SUM} of the new sum within {WITHIN} steps"
    return "\n".join([*lines, "", aim(words, part >= OF_THE_SUM, f"{part:.3f}")])


if __name__ == "__main__":
    bench = Bench("follow", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    enough = at_least(HALVED_AFTER + 8, f"some must be left after step {HALVED_AFTER}")
    bench.option("--steps", type=enough, default=26, help="of the run together (default: 26)")
    bench.run(measure)
