"""Provoke failures on two machines of the lab, and write down how soon each is named.

    sudo .venv/bin/python -m tests.bench.diagnosis

It takes about ten minutes on two cores. `./scripts/test` provokes them too.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.bench.command import Bench, played
from tests.bench.paper import measured, median_of


def table(figures: Mapping[str, Any]) -> str:
    found = sorted(figures["diagnosis"], key=lambda each: each["seconds"])
    by_time = groupby(found, lambda each: f"{each['seconds']:.0f}")
    named = (f"{time} s: {', '.join(its['failure'] for its in each)}" for time, each in by_time)
    return (
        "On two machines of the lab, with a script that fails as it is told. From the call that "
        "fails to the end of the command, which shows node, cause and cure. "
        f"{measured(figures)} {len(found)} failures, named after {median_of(found, 'seconds'):.0f} "
        f"s in the median, after {found[-1]['seconds']:.0f} s at most. {'; '.join(named)}."
    )


def measure(_: Namespace, folder: Path) -> dict[str, Any]:
    return {"diagnosis": played("cluster/test_lab_diagnosis.py", folder)}


if __name__ == "__main__":
    Bench("diagnosis", __doc__, table, lab=True).run(measure)
