"""Measure how long a model takes from one node to all others, on the lab.

    sudo .venv/bin/python -m tests.bench.distribute

boots eight machines, under a name of its own, with links of 100 Mbit/s. One has a model; by
playbooks/distribute.yml it goes to one other machine, to two and to seven, several times in turn.
It writes the raw figures beside itself and the table into docs/measurements.md. It takes about ten
minutes on two cores.
"""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.bench.cluster import READY
from tests.bench.command import Bench
from tests.bench.distribute.report import table
from tests.bench.lab import NAME, CommandFailed, Lab

LINK = "100mbit"
SIZES = (2, 3, 8)
"""Nodes that have the model in the end; two is one copy."""

_RECORD = "/home/lab/ai-cluster/config/transfer.json"


class Machines(Lab):
    """The machines, of which the first has the model."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        super().__init__(max(SIZES), folder, READY)
        self._models, self._bytes = folder / "models", megabytes * 1_000_000
        self._names: list[str] = []

    def __enter__(self) -> Machines:
        """Have the machines booted, provisioned and slow, and the first with the model."""
        os.environ["HEARTH_LAB"] = NAME  # by which what is imported next knows the lab
        from support.cached_model import make_cached
        from support.lab import bring

        from hearth_lab import plan

        self._names = [node.name for node in plan.nodes(max(SIZES))]
        try:
            self.up()
            self.play("playbooks/preflight.yml")
            self.play("playbooks/workspace.yml")
            make_cached(self._models, self._bytes)
            bring(self._models, self._names[:1])
            for node in self._names:
                self.do("link", node, LINK)
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take the machines away."""
        self.down()

    def sent(self, count: int) -> dict[str, float]:
        """Bring the model to so many nodes in all; return the seconds that it took.

        `transfer` is from the first question of any node to the last file in its place, `play`
        the whole command.
        """
        from support.cached_model import ID
        from support.lab import as_root, at_once

        names = self._names[:count]
        forget = f"rm -rf {self._models}; install -d -o lab {self._models.parent} {self._models}"
        at_once(lambda node: as_root(node, forget), names[1:])
        self._machines = count
        self._write_hosts()
        began = time.monotonic()
        words = ("-e", f"model={ID}", "-e", f"hearth_models={self._models}")
        self.play("playbooks/distribute.yml", *words)
        seconds = time.monotonic() - began
        records = [json.loads(as_root(node, f"cat {_RECORD}")) for node in names[1:]]
        if short := [record for record in records if record["sent"] < self._bytes]:
            raise CommandFailed(f"not everything was sent: {short}")
        first = min(record["began"] for record in records)
        last = max(record["ended"] for record in records)
        return {"transfer": last - first, "play": seconds}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the seconds of each number of nodes, repeats in a list, and what was sent."""
    seconds: dict[str, Any] = {str(count): [] for count in SIZES}
    with Machines(folder, given.megabytes) as machines:
        for turn in range(given.repeat):
            for count in SIZES:
                seconds[str(count)].append(machines.sent(count))
            print(f"bench: {turn + 1} of {given.repeat} turns", flush=True)
    return {"link": LINK, "megabytes": given.megabytes, "seconds": seconds}


def main() -> int:
    """Run the command line; return the exit status."""
    bench = Bench("distribute", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="times each (default: 3)")
    bench.option("--megabytes", type=int, default=300, help="of the model (default: 300)")
    return bench.run(measure)


if __name__ == "__main__":
    sys.exit(main())
