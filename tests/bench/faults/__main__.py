"""Play every kind of fault on every machine of the lab, and write down what came of it.

    sudo .venv/bin/python -m tests.bench.faults

kills a rank, cuts the power, cuts the cable and fills the disk, each on each of three machines, at
some step of a run, and compares what was learned with a run that nothing disturbed, bit for bit. It
takes about a quarter of an hour on two cores. `./scripts/test` plays one kind of fault on each
machine.
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
    "disk": "the disk is full",
}


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        "On three machines of the lab, a tiny model, checkpoints every 5 steps, silence noticed "
        f"after 6 s. {measured(figures)} Down: until no rank was left on the other nodes. Back: "
        "from the cure to the next launch (after a full disk, that is a person's `resume`).",
        "",
        "| fault | on | at step | down after | back after | learned the same, bit for bit |",
        "|---|---|--:|--:|--:|---|",
    ]
    elastic: list[str] = []
    for found in figures["faults"]:
        if found["kind"] == "elastic":
            elastic += [
                "",
                "With `-e elastic=true`, the cable of laptop cut: the other two take their next "
                f"step after {found['seconds_until_on']:.0f} s. Its cable joined: all three take "
                f"one after {found['seconds_until_in']:.0f} s.",
            ]
            continue
        down = "" if found["kind"] == "kill" else f"{found['seconds_until_down']:.0f} s"
        lines.append(
            f"| {_WORDS[found['kind']]} | {found['node']} | {found['step']} | {down} | "
            f"{found['seconds_until_back']:.0f} s | yes |"
        )
    return "\n".join([*lines, *elastic])


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    return {"faults": played("cluster/test_lab_faults.py", folder)}


if __name__ == "__main__":
    Bench("faults", __doc__, table, lab=True).run(measure)
