"""Provoke failures on two machines of the lab, and write down how soon each is named.

    sudo .venv/bin/python -m tests.bench.diagnosis

It writes the raw figures beside itself and the table into docs/measurements.md. It takes about ten
minutes on two cores. `./scripts/test` provokes them too.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.command import Bench, played


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of docs/measurements.md for `figures`."""
    found = sorted(figures["diagnosis"], key=lambda each: each["seconds"])
    seconds = [each["seconds"] for each in found]
    slowest = max(seconds)
    lines = [
        "On two machines of the lab, with a script that fails as it is told "
        "(`tests/fixtures/scripts/fails`); tower is rank 0. From the call that fails to the end of "
        "`train.yml`, which shows node, cause and cure and has brought the logs here. Measured on "
        f"{figures['date']} on {figures['computer']}; Hearth {figures['hearth']}.",
        "",
        "| failure | began on | named after |",
        "|---|---|--:|",
        *(f"| {its['failure']} | {its['node']} | {its['seconds']:.0f} s |" for its in found),
        "",
        f"{len(found)} failures: named after {median(seconds):.0f} s in the median, after "
        f"{slowest:.0f} s at most. The tests hold each to 60 s.",
    ]
    return "\n".join(lines)


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    """Return, for each failure, the time until it was named."""
    return {"diagnosis": played("cluster/test_lab_diagnosis.py", folder)}


if __name__ == "__main__":
    sys.exit(Bench("diagnosis", __doc__, table, lab=True).run(measure))
