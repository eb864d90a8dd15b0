"""From a run's record to figures, and from those to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from tests.bench.paper import aim, measured

WITHIN_STEPS, WITHIN = 5, 0.2


def step_figures(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of one step in a line of metrics."""
    names = ("step", "tokens_per_second", "compute_seconds_by_rank", "wait_seconds_by_rank")
    more = ("eta_seconds", "rows_by_rank")
    return {name: line[name] for name in (*names, *more)} | {"slow_links": line.get("slow_links")}


def named(run: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the steps that named a link."""
    return [step for step in run["steps"] if step["slow_links"]]


def mbit_of(rate: str) -> float:
    """Return the Mbit/s of a rate as tc takes it."""
    number, unit = re.fullmatch(r"(\d+)(k|m)bit", rate).groups()
    return float(number) / (1000 if unit == "k" else 1)


def speed(steps: Sequence[Mapping[str, Any]]) -> float:
    """Return the median tokens a second of these steps."""
    return median(step["tokens_per_second"] for step in steps)


def table(figures: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
    victim = figures["victim"]
    healthy = figures["healthy"]
    lines = [
        f"Emulated: machines of the lab with a share of a core each ({shares}), CPU, Hearth's "
        f"ring, links of 1 Gbit/s; that of {victim} is held to a rate in mid-run. "
        f"{measured(figures)}",
        "",
        "| rate | tokens/s before | during | after | named after steps | links | carried |",
        "|---|--:|--:|--:|--:|---|--:|",
    ]
    aims = []
    for rate, run in figures["rates"].items():
        begin, end = run["throttled_during"], run["let_go_during"]
        steps, found = run["steps"], named(run)
        parts = (steps[: begin - 1], steps[begin : end - 1], steps[end:])
        speeds = " | ".join(f"{speed(part):.0f}" for part in parts)
        if not found:
            aims.append(aim(f"{rate}: named", False, "never"))
            continue
        first, last = found[0], found[-1]["slow_links"]
        after = first["step"] - begin + 1
        hops = ", ".join(" → ".join(hop) for hop in last["hops"])
        carried = median(each["slow_links"]["mbit"] for each in found[:-2] or found)
        lines.append(f"| {rate} | {speeds} | {after} | {hops} | {carried:.3g} Mbit/s |")
        right = abs(carried / mbit_of(rate) - 1) <= WITHIN and after <= WITHIN_STEPS
        words = f"{rate}: named within {WITHIN_STEPS} steps, right to within {WITHIN:.0%}"
        aims.append(aim(words, right, f"{after} steps, {carried / mbit_of(rate):.2f} of it"))
    wrong = len(named(healthy))
    count = len(healthy["steps"])
    groups = len(healthy["teams"])
    words = (
        f"No link is named in {count} steps of healthy links with a slower node, one that stands "
        f"still, {groups} regroups, evaluations and checkpoints"
    )
    return "\n".join([*lines, "", *aims, aim(words, not wrong, f"{wrong} steps")])
