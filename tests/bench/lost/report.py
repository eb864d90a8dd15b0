"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from support.losses import HARMLESS, KINDS, MOMENTS

from tests.bench.paper import aim, measured

WITHIN = {"fp64": 1e-9, "fp32": 1e-3}
"""Distance of the adapter's change from that of one process, relative to the change."""

_Case = Mapping[str, Any]


def table(figures: Mapping[str, Any]) -> str:
    cases = [case for sitting in figures["sittings"] for case in sitting["cases"]]
    silence = figures["silence"]
    lines = [
        "Three nodes on this computer, each with a network and a disk of its own: real "
        f"supervisors, torchrun and ranks, gloo, a tiny model that takes {figures['load']:g} s to "
        f"load, silence noticed after {silence:g} s. {_measured(figures)} {_count(cases)}, at "
        "random steps, on each node, the leader's included. Seconds from the fault until the next "
        "step of the nodes without one, and until a step of all; medians with the most.",
        "",
        "| what happens to a node | n | next step | of all |",
        "|---|--:|--:|--:|",
    ]
    for kind, words in KINDS.items():
        if alone := [
            case for case in cases if case["moment"] == "steps" and _kinds(case) == [kind]
        ]:
            on = "ends no group" if kind in HARMLESS else _seconds(alone, "seconds_until_on")
            lines.append(
                f"| {words} | {len(alone)} | {on} | {_seconds(alone, 'seconds_until_together')} |"
            )
    two = [case for case in cases if case["moment"] == "steps" and len(case["faults"]) > 1]
    lines.append(f"| two of these at once | {len(two)} | | {_seconds(two, _OF_ALL)} |")
    for moment in MOMENTS[1:]:
        its = [case for case in cases if case["moment"] == moment]
        lines.append(f"| {_MOMENTS[moment]} | {len(its)} | | {_seconds(its, _OF_ALL)} |")
    return "\n".join(
        [*lines, "", *_exactness(figures["sittings"]), *_in_a_row(figures["sittings"])]
    )


def _measured(figures: Mapping[str, Any]) -> str:
    """Return the sentence on the circumstances of the figures, and on the runs that lack."""
    commits = dict.fromkeys(sitting["hearth"] for sitting in figures["sittings"])
    said = measured({**figures, "hearth": ", ".join(commits)})
    played, planned = len(figures["sittings"]), figures["runs"]
    return said + (f" {played} of {planned} runs were played so far:" if played < planned else "")


_OF_ALL = "seconds_until_together"

_MOMENTS = {
    "checkpoint": "one or two while a checkpoint is written",
    "join": "one or two while a node comes back",
    "leave": "one or two while a node leaves in order",
}


def _kinds(case: _Case) -> list[str]:
    return [kind for kind, _ in case["faults"]]


def _faults(cases: Iterable[_Case]) -> int:
    return sum(len(case["faults"]) for case in cases)


def _count(cases: Sequence[_Case]) -> str:
    return f"{_faults(cases)} faults in {len(cases)} cases"


def _seconds(cases: Iterable[_Case], name: str) -> str:
    """Return the median of a time with its most, or a dash where no case has it."""
    values = [case[name] for case in cases if case[name] is not None]
    if not values:
        return "–"
    several = f" (to {max(values):.1f})" if len(values) > 1 else ""
    return f"{median(values):.1f}{several}"


def _exactness(sittings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return lines on how far each run was from one process that nothing disturbed."""
    lines = []
    for precision, within in WITHIN.items():
        if its := [sitting for sitting in sittings if sitting["precision"] == precision]:
            most = max(sitting["apart"] for sitting in its)
            steps = sum(sitting["steps"] for sitting in its)
            words = (
                f"{precision}: the change of the adapter within {within:g} of what one process "
                "learns from the same global batches"
            )
            lines.append(aim(words, most <= within, f"{most:.1e}, {steps} steps"))
    runs = f"run{'s' * (len(sittings) > 1)}"
    return [
        *lines,
        f"- Every step once in `metrics.jsonl`, on each node, in {len(sittings)} {runs}.",
    ]


def _in_a_row(sittings: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"- {_faults(sitting['cases'])} random faults in a row on one run of {sitting['steps']} "
        "steps: it ended as asked; nothing hung."
        for sitting in sittings
        if sitting["in_a_row"]
    ]
