"""Show that a link that becomes slow in mid-run is named, on the lab.

    sudo .venv/bin/python -m tests.bench.throttled

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
They train on healthy links, while one of them computes slower, stands still, is killed and comes
back, between evaluations and checkpoints; then once for each rate: the cable of one of them is held
to it on the way, and let go after some steps. It takes half an hour on two cores.
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
"""The cable is held to a rate after these steps."""

RATES = {"5mbit": 8, "200kbit": 3}
"""The rates, and the steps of each: at the second one a step takes minutes."""

AFTERWARDS = 12
HEALTHY = 110
STILL = 8.0
"""The ranks of a machine stand still for these seconds."""

DISTURBED = {"checkpoint_every": 20, "eval_held_out": True, "eval_every": 25, "held_out": 0.1}
SETTINGS = {"lora_rank": 16, "lora_alpha": 16}


def throttled_run(machines: Machines, rate: str, held: int) -> dict[str, Any]:
    """Train on all, with a slow link on the way; return the steps and when the link was slow."""
    changed: dict[str, int] = {}

    def throttle(step: int) -> None:
        machines.do("link", VICTIM, rate)
        changed["throttled_during"] = step

    def let_go(step: int) -> None:
        machines.do("link", VICTIM, "1gbit")
        changed["let_go_during"] = step

    acts = {THROTTLED_AFTER: throttle, THROTTLED_AFTER + held: let_go}
    try:
        figures = run_with(machines, THROTTLED_AFTER + held + AFTERWARDS, acts)
    finally:
        machines.do("link", VICTIM, "1gbit")
    return {**figures, **changed}


def healthy_run(machines: Machines, steps: int) -> dict[str, Any]:
    """Train on all nodes while everything but a link is disturbed; return the steps."""
    share = machines.shares["laptop"]

    def signal(name: str) -> None:
        machines.inside(VICTIM, "pkill", f"-{name}", "-f", "hearth.trainer")

    def stand_still(_: int) -> None:
        signal("STOP")
        time.sleep(STILL)
        signal("CONT")

    acts: dict[int, Callable[[int], None]] = {
        steps // 6: lambda _: machines.share("laptop", share / 3),
        steps // 3: lambda _: machines.share("laptop", share),
        steps // 2: stand_still,
        steps * 2 // 3: lambda _: signal("KILL"),
    }
    return run_with(machines, steps, acts, **DISTURBED)


def run_with(
    machines: Machines, steps: int, acts: Mapping[int, Callable[[int], None]], **more: Any
) -> dict[str, Any]:
    """Train on all nodes; return the steps, and the nodes of each group.

    Each of `acts` is called after its number of steps, with the step under way.
    """
    run, leader = machines.next_run(), machines.names[0]
    record = f"/home/lab/ai-cluster/results/{run}/metrics.jsonl"
    over, left = threading.Event(), dict(acts)

    def done() -> int:
        return int(machines.inside(leader, "grep", "--count", '"kind": "step"', record) or 0)

    def disturb() -> None:
        for step, act in acts.items():
            while done() < step:
                if over.wait(0.2):
                    return
            act(done() + 1)
            del left[step]

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        settings = {"max_steps": steps, "global_batch": machines.rows, **SETTINGS}
        lines = machines.train(machines.names, **settings | machines.work | more).record
    finally:
        over.set()
        disturber.join()
    if left:
        raise CommandFailed(f"{run} was over before all was done to it")
    teams = [line["nodes"] for line in lines if line["kind"] == "team"]
    found = [step_figures(line) for line in lines if line["kind"] == "step"]
    return {"steps": found, "teams": teams}


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
