"""Measure how soon others go on without a lost node: Hearth, which relaunches, and torchft.

    python -m tests.bench.elastic

trains the same small work over three nodes on loopback, under Hearth's supervisors with `elastic`
and under torchft, which it installs for itself from the package index. One node is killed on the
way, and started again. A repeat took six minutes on two busy cores.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from tests.bench.command import Bench, at_least, turns
from tests.bench.elastic.engines import LEAST, NODES, ROWS, Hearth, Torchft, install_torchft, until
from tests.bench.elastic.report import figures_of, table
from tests.bench.heterogeneous.work import LENGTH, make_work

TORCHFT = "0.2.0"
LOST_AFTER = 60
"""Steps after which a node is lost: ten after a checkpoint of Hearth's, which come every 50."""


def lose_one(engine: Hearth | Torchft) -> dict[str, float]:
    """Train, lose a node and start it again; return what that cost. Nothing outlives the call."""
    try:
        engine.start()
        until(engine, "late enough", lambda step: step.number >= LOST_AFTER)
        engine.lose()
        lost = time.time()
        steps = engine.steps()
        reached = max(step.number for step in steps if step.at <= lost)
        on = until(
            engine, "without the lost one", lambda step: step.at > lost and step.together == LEAST
        )
        past = until(
            engine, "past the loss", lambda step: step.at >= on.at and step.number > reached
        )
        begun = time.time()
        engine.again()
        back = until(engine, "of all", lambda step: step.at > begun and step.together == NODES)
        return figures_of(lost, steps, on, past) | {"seconds_until_in": back.at - begun}
    finally:
        engine.close()


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    load = os.getloadavg()[0]
    python = install_torchft(folder / "venv", TORCHFT)
    work = make_work(folder, 4000)
    found: dict[str, list[dict[str, float]]] = {"runs": [], "hearth_runs": []}
    for turn in turns(given.repeat):
        torchft = Torchft(folder / f"torchft-{turn}", *work, python)
        found["runs"].append(lose_one(torchft))
        found["hearth_runs"].append(lose_one(Hearth(folder / f"hearth-{turn}", *work)))
        print(f"bench: {found}", flush=True)
    said = f"A Llama of 8 layers with random weights, LoRA, {ROWS} rows of {LENGTH} tokens a step."
    return {
        "torchft": TORCHFT,
        "torch": torch.__version__,
        "load": load,
        "work": said,
        "lost_after": LOST_AFTER,
        **found,
    }


if __name__ == "__main__":
    bench = Bench("elastic", __doc__, table)
    some = at_least(1, "there is nothing to show otherwise")
    bench.option("--repeat", type=some, default=3, help="losses under each (default: 3)")
    bench.run(measure)
