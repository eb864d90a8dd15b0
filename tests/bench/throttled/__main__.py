"""Show that a link that becomes slow in mid-run is named, on the lab.

    sudo .venv/bin/python -m tests.bench.throttled

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
They train, undisturbed, then once for each rate: the cable of one of them is held to it on the way,
and let go after some steps. It takes half an hour on two cores, on which nothing else should run.
"""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.bench.cluster import UNEQUAL
from tests.bench.command import Bench
from tests.bench.heterogeneous.__main__ import Machines
from tests.bench.lab import CommandFailed
from tests.bench.throttled.report import step_figures, table

VICTIM = "oldbox"
THROTTLED_AFTER = 12
"""Steps after which the cable is held to a rate."""

RATES = {"5mbit": 8, "200kbit": 3}
"""The rates, and the steps for which each holds: at the second one a step takes minutes."""

AFTERWARDS = 12
HEALTHY = 110
SETTINGS = {"lora_rank": 16, "lora_alpha": 16}


def throttled_run(machines: Machines, rate: str, held: int) -> dict[str, Any]:
    """Train on all, with a slow link on the way; return the steps and when the link was slow."""
    run, leader = machines.next_run(), machines.names[0]
    record = f"/home/lab/ai-cluster/results/{run}/metrics.jsonl"
    changed: dict[str, int] = {}

    def done() -> int:
        return int(machines.inside(leader, "grep", "--count", '"kind": "step"', record) or 0)

    def reached(step: int) -> Callable[[], bool]:
        return lambda: done() >= step

    def throttle() -> None:
        machines.do("link", VICTIM, rate)
        changed["throttled_during"] = done() + 1

    def let_go() -> None:
        machines.do("link", VICTIM, "1gbit")
        changed["let_go_during"] = done() + 1

    over = threading.Event()

    def disturb() -> None:
        for condition, act in (
            (reached(THROTTLED_AFTER), throttle),
            (reached(THROTTLED_AFTER + held), let_go),
        ):
            while not condition():
                if over.wait(0.2):
                    return
            act()

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        steps = THROTTLED_AFTER + held + AFTERWARDS
        figures = healthy_run(machines, steps)
    finally:
        over.set()
        disturber.join()
        machines.do("link", VICTIM, "1gbit")
    if len(changed) < 2:
        raise CommandFailed(f"{run} was over before the link of {VICTIM} was let go")
    return {**figures, **changed}


def healthy_run(machines: Machines, steps: int) -> dict[str, Any]:
    """Train on all nodes; return the steps, and the seconds of the play."""
    began = time.monotonic()
    settings = {"max_steps": steps, "global_batch": machines.rows, **SETTINGS}
    trained = machines.train(machines.names, **settings, **machines.work)
    steps_of = [step_figures(line) for line in trained.record if line["kind"] == "step"]
    return {"seconds": round(time.monotonic() - began), "steps": steps_of}


def measure(given: Namespace, folder: Path) -> Mapping[str, Any]:
    machines = Machines(folder, UNEQUAL)
    with machines.up_and_ready():
        healthy = healthy_run(machines, given.healthy)
        rates = {rate: throttled_run(machines, rate, held) for rate, held in RATES.items()}
    names = machines.names
    return {"shares": UNEQUAL, "nodes": names, "victim": VICTIM, "healthy": healthy, "rates": rates}


if __name__ == "__main__":
    bench = Bench("throttled", __doc__, table, lab=True)
    bench.option("--healthy", type=int, default=HEALTHY, help=f"steps (default: {HEALTHY})")
    bench.run(measure)
