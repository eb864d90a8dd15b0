"""Measure how long a model takes from one node to all others, on the lab.

    sudo .venv/bin/python -m tests.bench.distribute

boots eight machines, under a name of its own, with links of 100 Mbit/s. One has a model; by
playbooks/distribute.yml it goes to one other machine, to two and to seven, several times in turn.
It takes about ten minutes on two cores.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.cluster import READY
from tests.bench.command import Bench, turns
from tests.bench.lab import CommandFailed, Lab
from tests.bench.paper import aim, measured, median_of, spread

LINK = "100mbit"
SIZES = (2, 3, 8)
"""Nodes that have the model in the end; two is one copy."""

MOST = 1.5
"""How many times the seconds of one copy all others may take together."""

_RECORD = "/home/lab/ai-cluster/config/transfer.json"


class Machines(Lab):
    def __init__(self, folder: Path, megabytes: int) -> None:
        super().__init__(max(SIZES), folder, READY)
        self._models, self._bytes = folder / "models", megabytes * 1_000_000

    def give_the_first(self) -> None:
        from support.cached_model import make_cached
        from support.lab import bring

        make_cached(self._models, self._bytes)
        bring(self._models, self.names[:1])

    def sent(self, count: int) -> dict[str, float]:
        """Bring the model to `count` nodes in all; return the seconds that it took.

        `transfer` is from the first question of any node to the last file in its place, `play`
        the whole command.
        """
        from support.cached_model import ID
        from support.lab import as_root, at_once

        others = self.names[1:count]
        forget = f"rm -rf {self._models}; install -d -o lab {self._models.parent} {self._models}"
        at_once(lambda node: as_root(node, forget), others)
        self.play_on(count)
        began = time.monotonic()
        words = ("-e", f"model={ID}", "-e", f"hearth_models={self._models}")
        self.play("playbooks/distribute.yml", *words)
        seconds = time.monotonic() - began
        records = [json.loads(as_root(node, f"cat {_RECORD}")) for node in others]
        if short := [record for record in records if record["sent"] < self._bytes]:
            raise CommandFailed(f"not everything was sent: {short}")
        first = min(record["began"] for record in records)
        last = max(record["ended"] for record in records)
        return {"transfer": last - first, "play": seconds}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    seconds: dict[str, Any] = {str(count): [] for count in SIZES}
    machines = Machines(folder, given.megabytes)
    with machines.ready(LINK):
        machines.give_the_first()
        for _ in turns(given.repeat):
            for count in SIZES:
                seconds[str(count)].append(machines.sent(count))
    return {"link": LINK, "megabytes": given.megabytes, "seconds": seconds}


def table(figures: Mapping[str, Any]) -> str:
    one = median_of(figures["seconds"]["2"], "transfer")
    lines = [
        f"Emulated: machines of the lab with links of {figures['link']}; a model of "
        f"{figures['megabytes']} MB, which one machine has. {measured(figures)} Seconds from the "
        "first question of a node until the model is proved and in its place on the last; medians "
        "of n, with the least and the most. The whole command also looks at the nodes before and "
        "after.",
        "",
        "| nodes in all | copies | n | seconds | | in times of one copy | MB/s into each node | "
        "whole command |",
        "|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    aims = []
    for count, runs in figures["seconds"].items():
        seconds = median_of(runs, "transfer")
        times = seconds / one
        lines.append(
            f"| {count} | {int(count) - 1} | {len(runs)} | {seconds:.1f} | "
            f"{spread([run['transfer'] for run in runs], 1)} | {times:.2f} | "
            f"{figures['megabytes'] / seconds:.1f} | {median_of(runs, 'play'):.1f} s |"
        )
        if count != "2":
            words = f"{count} nodes in at most {MOST} times the time of one copy"
            aims.append(aim(words, times <= MOST, f"{times:.2f}"))
    return "\n".join([*lines, "", *aims])


if __name__ == "__main__":
    bench = Bench("distribute", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="times each (default: 3)")
    bench.option("--megabytes", type=int, default=300, help="of the model (default: 300)")
    bench.run(measure)
