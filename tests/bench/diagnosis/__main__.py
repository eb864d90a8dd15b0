"""Provoke failures on two machines of the lab, and write down how soon each is named.

    sudo .venv/bin/python -m tests.bench.diagnosis

It takes about ten minutes on two cores. `./scripts/test` provokes them too.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.command import Bench, played
from tests.bench.paper import measured, median_of


def table(figures: Mapping[str, Any]) -> str:
    found = sorted(figures["diagnosis"], key=lambda each: each["seconds"])
    lines = [
        "On two machines of the lab, with a script that fails as it is told "
        "(`tests/fixtures/scripts/fails`); tower is rank 0. From the call that fails to the end of "
        "`train.yml`, which shows node, cause and cure and has brought the logs here. "
        f"{measured(figures)}",
        "",
        "| failure | began on | named after |",
        "|---|---|--:|",
        *(f"| {its['failure']} | {its['node']} | {its['seconds']:.0f} s |" for its in found),
        "",
        f"{len(found)} failures: named after {median_of(found, 'seconds'):.0f} s in the median, "
        f"after {found[-1]['seconds']:.0f} s at most. The tests hold each to 60 s.",
    ]
    return "\n".join(lines)


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    return {"diagnosis": played("cluster/test_lab_diagnosis.py", folder)}


if __name__ == "__main__":
    Bench("diagnosis", __doc__, table, lab=True).run(measure)
