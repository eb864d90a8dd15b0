"""Measure how soon the split follows a machine that slows down to half, on the lab.

    sudo .venv/bin/python -m tests.bench.follow

boots three machines, under a name of its own, with shares of a core of 4:2:1 and links of 1 Gbit/s.
Each trains alone, one of them with half its share too; then all train together, and that one is
halved on the way. It writes the raw figures beside itself and the table into docs/benchmarks.md. It
takes most of an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.bench.follow.report import table
from tests.bench.heterogeneous.__main__ import SKIPPED, UNEQUAL, Bench
from tests.bench.lab import NAME, ROOT, CommandFailed
from tests.bench.paper import circumstances, publish

FIGURES = Path(__file__).with_name("figures.json")
VICTIM = "laptop"
ALONE_STEPS = 8
HALVED_AFTER = 10
"""Steps after which the machine is halved."""


class Following(Bench):
    """The machines, of which one can be halved while they train."""

    def alone(self, node: str) -> dict[str, Any]:
        """Train on one machine, for fewer steps; return as `train`."""
        steps, self._steps = self._steps, ALONE_STEPS
        try:
            return self.train([node], "auto")
        finally:
            self._steps = steps

    def train_halving(self, nodes: Sequence[str], leader: str) -> dict[str, Any]:
        """Train on all, and halve one of them on the way; return as `train`, and in which step.

        Raises `CommandFailed` if they did not train for so long.
        """
        over = threading.Event()
        run = self.run_name(self._count + 1)
        with ThreadPoolExecutor(1) as pool:
            halved = pool.submit(self._halve, run, leader, over)
            try:
                trained = self.train(nodes, "auto")
            finally:
                over.set()
        if halved.result() is None:
            raise CommandFailed(f"{run} was over before {VICTIM} was halved")
        return trained | {"halved_during": halved.result()}

    def _halve(self, run: str, leader: str, over: threading.Event) -> int | None:
        """Halve the machine after so many steps; return the step that was then under way."""
        while not over.wait(0.5):
            if _steps_done(run, leader) >= HALVED_AFTER:
                self.do("cpu", VICTIM, str(UNEQUAL[VICTIM] / 2))
                return _steps_done(run, leader) + 1
        return None


def _steps_done(run: str, leader: str) -> int:
    """Return how many steps the run has on record on the machine of rank 0."""
    from support.lab import at_home  # knows the lab by HEARTH_LAB, which `main` sets

    lines = at_home(leader, f"cat ai-cluster/results/{run}/metrics.jsonl 2>/dev/null || true")
    whole = [line for line in lines.splitlines() if line.endswith("}")]
    steps = [record["step"] for record in map(json.loads, whole) if record["kind"] == "step"]
    return max(steps, default=0)


def sitting(bench: Following, shares: Mapping[str, float], repeat: int) -> dict[str, Any]:
    """Return the figures of each kind of run, repeats in a list."""
    names = list(shares)
    found: dict[str, Any] = {"alone": {name: [] for name in names}, "halved": [], "together": []}
    try:
        bench.prepare(shares)
        for turn in range(repeat):
            for name in names:
                found["alone"][name].append(bench.alone(name))
            bench.do("cpu", VICTIM, str(shares[VICTIM] / 2))
            found["halved"].append(bench.alone(VICTIM))
            bench.do("cpu", VICTIM, str(shares[VICTIM]))
            found["together"].append(bench.train_halving(names, names[0]))
            bench.do("cpu", VICTIM, str(shares[VICTIM]))
            print(f"bench: {turn + 1} of {repeat} turns", flush=True)
    finally:
        bench.down()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.follow",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    parser.add_argument(
        "--steps", type=int, default=26, help="steps of the run together (default: 26)"
    )
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("the lab needs root")
    if given.steps < HALVED_AFTER + 8:
        parser.error(f"after step {HALVED_AFTER} some steps must be left: at least 8")
    os.environ["HEARTH_LAB"] = NAME
    sys.path.insert(0, str(ROOT / "tests"))  # for tests/support
    # Not below /tmp, which a machine has for itself.
    with tempfile.TemporaryDirectory(prefix="hearth-bench-", dir="/var/tmp") as folder:
        try:
            found = sitting(Following(Path(folder), given.steps), UNEQUAL, given.repeat)
        except CommandFailed as error:
            print(f"bench: a run failed: {error}", file=sys.stderr)
            return 1
    figures = circumstances() | {
        "shares": UNEQUAL,
        "victim": VICTIM,
        "skipped": SKIPPED,
        **found,
    }
    print(table(figures))
    if not given.dry:
        publish("follow", figures, FIGURES, table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
