"""Play every kind of fault on every machine of the lab, and write down what came of it.

    sudo .venv/bin/python -m tests.bench.faults

kills a rank, cuts the power, cuts the cable for long and for a moment, and fills the disk, each on
each of three machines, at some step of a run, and compares the weights with those of one process
learns from the same global batches. It takes about a quarter of an hour on two cores.
`./scripts/test` plays one kind of fault on one machine a day.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.command import Bench, played
from tests.bench.paper import measured

_WORDS = {
    "kill": "a rank is killed (-9)",
    "power": "the power is cut",
    "cable": "the cable is cut",
    "flap": "the cable is cut for 2 s",
    "disk": "the disk is full",
}


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        "On three machines of the lab, each fault on each, a tiny model unless another is named, "
        f"silence noticed after 6 s. {measured(figures)} Medians with the most. On: until the "
        "others' next step. In: from the cure until a step of all three (a full disk stops none of "
        "them). Wait: the others' longest pause meanwhile. Apart: of what the "
        "adapter learned from what one process learns. Each step stands once on each record.",
        "",
        "| fault | n | on after | in after | wait | apart |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for each in figures["faults"]:
        model = f" ({each['model']})" if "model" in each else ""
        alike.setdefault(_WORDS[each["kind"]] + model, []).append(each)
    for what, found in alike.items():
        times = " | ".join(
            _seconds([each[name] for each in found if name in each])
            for name in ("seconds_until_on", "seconds_until_in", "seconds_waited")
        )
        apart = max(each["apart"] for each in found)
        lines.append(f"| {what} | {len(found)} | {times} | {apart:.1e} |")
    return "\n".join(lines)


def _seconds(values: Sequence[float]) -> str:
    """Return the median of some seconds, with the most if there are several."""
    if not values:
        return ""
    several = f" (to {max(values):.1f})" if len(values) > 1 else ""
    return f"{median(values):.1f} s{several}"


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    return {"faults": played("cluster/test_lab_faults.py", folder)}


if __name__ == "__main__":
    Bench("faults", __doc__, table, lab=True).run(measure)
