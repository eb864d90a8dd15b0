"""Measure provision.yml on the lab, beside a ping of the same machines.

    sudo .venv/bin/python -m tests.bench.provision

boots the lab twice, under a name of its own: 3 machines and then 10, bare. Each is provisioned,
then provisioned again as often as asked, with a ping before each. The machines take their packages
from this computer's .venv (--python), so the first run does not include the time of a download.
"""

from __future__ import annotations

import resource
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.cluster import READY
from tests.bench.command import Bench
from tests.bench.lab import ROOT, Lab, run
from tests.bench.paper import aim, median_of

PINGS = 100
RUNS = {
    "first": "first run",
    "second": "second run, without the all-reduce",
    "second_with_sum": "second run with the all-reduce",
}


class Machines(Lab):
    def provision(self, *words: str) -> dict[str, float]:
        return self._timed(self.playbook("provision.yml", *words))

    def ping(self) -> dict[str, float]:
        ping = ["cluster", "-m", "ansible.builtin.ping"]
        return self._timed(["ansible", "-i", str(self.inventory), *ping])

    def _timed(self, command: Sequence[str]) -> dict[str, float]:
        """Run a command and return its seconds on the clock, `wall`, and of the processor, `cpu`.

        The processor's are those of the command and all it waited for; the SSH master that outlives
        it is not among them, and neither are the machines, which share the computer.
        """
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = time.perf_counter()
        run(command, ROOT, self.environment)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        return {"wall": round(wall, 3), "cpu": round(cpu, 3)}


def sitting(machines: Machines, repeat: int) -> dict[str, Any]:
    """Return the costs of each kind of run over the machines, repeats in a list."""
    without = ("-e", "_verify_sum=off")
    machines.up()
    try:
        first, ping, second = [machines.provision()], [], []
        for _ in range(repeat):
            ping.append(machines.ping())
            second.append(machines.provision(*without))
        with_sum = [machines.provision()]
    finally:
        machines.down()
    costs = {"first": first, "ping": ping, "second": second, "second_with_sum": with_sum}
    return {"machines": len(machines.names), **costs}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    sittings = [
        sitting(Machines(count, folder, given.python), given.repeat) for count in given.machines
    ]
    return {"ansible": version("ansible-core"), "sittings": sittings}


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        f"Measured on {figures['date']} on {figures['computer']} with ansible-core "
        f"{figures['ansible']}; Hearth {figures['hearth']}. The machines of the lab share this "
        "computer's cores, and need no download. A ping is `ansible cluster -m ping`.",
        "",
        "| machines | | seconds | a machine |",
        "|--:|---|--:|--:|",
    ]
    aims, each = [], {}
    for sitting in figures["sittings"]:
        count, ping = sitting["machines"], median_of(sitting["ping"], "wall")
        for kind, words in RUNS.items():
            wall = median_of(sitting[kind], "wall")
            lines.append(f"| {count} | {words} | {wall:.1f} | {wall / count:.2f} |")
        second = median_of(sitting["second"], "wall")
        each[count] = second / count
        words = f"A second run over {count} machines, without the all-reduce, within {PINGS} pings"
        aims.append(aim(words, second <= PINGS * ping, f"{second / ping:.0f}"))
    if len(each) > 1:
        few, many = min(each), max(each)
        words = f"The cost a machine at {many} no higher than at {few}"
        found = f"{each[many]:.2f} s and {each[few]:.2f} s"
        aims.append(aim(words, each[many] <= each[few], found))
    return "\n".join([*lines, "", *aims])


if __name__ == "__main__":
    bench = Bench("provision", __doc__, table, lab=True)
    bench.option("--machines", type=int, nargs="+", default=[3, 10], metavar="N")
    bench.option("--repeat", type=int, default=3, help="second runs a size (default: 3)")
    bench.option(
        "--python",
        default=READY,
        help="hearth_python of the machines (default: %(default)s, which needs no installation)",
    )
    bench.run(measure)
