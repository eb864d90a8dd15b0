"""Play every kind of fault on every machine of the lab, and write down what came of it.

    sudo .venv/bin/python -m tests.bench.faults

kills a rank, cuts the power, cuts the cable for long and for a moment, and fills the disk, each on
each of three machines, at some step of a run, and compares what was learned with what one process
learns from the same global batches. It takes about a quarter of an hour on two cores.
`./scripts/test` plays one kind of fault on one machine a day.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
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
        "On three machines of the lab, a tiny model unless another is named, float32, silence "
        "noticed after 6 s. "
        f"{measured(figures)} On: until the others' next step. In: from the cure until a step of "
        "all three (after a full disk, that is a person's `resume`). Wait: the longest pause "
        "between two steps of the others until then. Apart: of the adapter's change from that of "
        "one process with the same global batches, relative to it. Each step stands once on each "
        "machine's record.",
        "",
        "| fault | on | at step | on after | in after | wait | apart |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for found in figures["faults"]:
        on, back, wait = (
            f"{found[name]:.1f} s" if name in found else ""
            for name in ("seconds_until_on", "seconds_until_in", "seconds_waited")
        )
        what = _WORDS[found["kind"]] + (f" ({found['model']})" if "model" in found else "")
        lines.append(
            f"| {what} | {found['node']} | {found['step']} | {on} | {back} | "
            f"{wait} | {found['apart']:.1e} |"
        )
    return "\n".join(lines)


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    return {"faults": played("cluster/test_lab_faults.py", folder)}


if __name__ == "__main__":
    Bench("faults", __doc__, table, lab=True).run(measure)
