"""Measure how soon others go on without a lost node, and what its return costs: Hearth and torchft.

    python -m tests.bench.elastic

trains the same small work over three nodes on loopback, with a stand-in of a model that takes 20 s
to load, under Hearth's supervisors and under torchft, which it installs for itself from the package
index. One node is lost on the way, killed or silent, a worker's or the leader's, and started again.
A repeat of all of it takes about twenty minutes on two cores.
"""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from hearth.supervisor.spec import Spec
from tests.bench.command import Bench, at_least, turns
from tests.bench.elastic.engines import (
    LEADER,
    LEAST,
    LOAD,
    NODES,
    ROWS,
    WORKER,
    Hearth,
    Torchft,
    install_torchft,
    until,
)
from tests.bench.elastic.report import CASES, figures_of, table, waited
from tests.bench.heterogeneous.work import LENGTH, make_work
from tests.bench.lab import CommandFailed

TORCHFT = "0.2.0"
LOST_AFTER = 60
"""A node is lost after these steps: ten after a checkpoint of Hearth's, which come every 50."""

PATIENCE = 180.0
"""Seconds within which the others must go on, or never."""


def lose_one(engine: Hearth | Torchft, node: int, silent: bool) -> dict[str, float | None]:
    """Train, lose a node and start it again; return what that cost. Nothing outlives the call."""
    other = LEADER if node == WORKER else WORKER
    try:
        engine.start()
        until(engine, other, "late enough", lambda step: step.number >= LOST_AFTER)
        lost = time.time()
        engine.take(node, silent)
        try:
            on = until(
                engine,
                other,
                "without the lost one",
                lambda step: step.at > lost and step.together == LEAST,
                PATIENCE,
            )
        except CommandFailed as error:
            print(f"bench: {error}", flush=True)
            return {"seconds_until_on": None}
        before = [step for step in engine.seen_by(other) if step.at <= lost]
        time.sleep(5)  # what is left of the machine's cores for the others comes back
        begun = time.time()
        engine.bring_back(node)
        back = until(
            engine, other, "of all", lambda step: step.at > begun and step.together == NODES
        )
        until(engine, other, "after that", lambda step: step.number >= back.number + 3)
        return figures_of(lost, before, on) | {
            "seconds_until_in": back.at - begun,
            "seconds_waited": waited(engine.seen_by(other), begun, back),
        }
    finally:
        engine.close()


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    load = os.getloadavg()[0]
    python = install_torchft(folder / "venv", TORCHFT)
    work = make_work(folder, 4000)
    found: dict[str, dict[str, list[dict[str, float | None]]]] = {
        engine: {case: [] for case in CASES} for engine in ("hearth", "torchft")
    }
    for turn in turns(given.repeat):
        for case in CASES:
            node = LEADER if "leader" in case else WORKER
            for engine in found:
                place = folder / f"{engine}-{turn}-{case.replace(' ', '-')}"
                if engine == "hearth":
                    made: Hearth | Torchft = Hearth(place, *work)
                else:
                    made = Torchft(place, *work, python)
                found[engine][case].append(lose_one(made, node, "silent" in case))
                print(f"bench: {engine}: {case}: {found[engine][case][-1]}", flush=True)
    said = f"A Llama of 8 layers with random weights, LoRA, {ROWS} rows of {LENGTH} tokens a step."
    return {
        "torchft": TORCHFT,
        "torch": torch.__version__,
        "machine_load": load,
        "work": said,
        "loads_for": LOAD,
        "lost_after": LOST_AFTER,
        "patience": PATIENCE,
        "silence": Spec.silence_timeout,
        "runs": found,
    }


if __name__ == "__main__":
    bench = Bench("elastic", __doc__, table)
    some = at_least(1, "there is nothing to show otherwise")
    bench.option("--repeat", type=some, default=3, help="losses of each kind (default: 3)")
    bench.run(measure)
