"""Measure provision.yml on the lab, beside a ping of the same machines.

    sudo .venv/bin/python -m tests.bench.provision

boots the lab twice, under a name of its own: 3 machines and then 10, bare. Each is provisioned,
then provisioned again as often as asked, with a ping before each. It writes the raw figures beside
itself and the table into docs/measurements.md. The machines take their packages from this
computer's .venv (--python), so the first run does not include the time of a download.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.command import Bench
from tests.bench.lab import ROOT, Lab
from tests.bench.provision.measure import Cost, timed
from tests.bench.provision.report import table


class Machines(Lab):
    """The machines, and what is timed on them."""

    def provision(self, *words: str) -> Cost:
        """Provision all machines once."""
        return timed(self.playbook("provision.yml", *words), ROOT, self.environment)

    def ping(self) -> Cost:
        """Ping all machines once."""
        command = ["ansible", "-i", str(self.inventory), "cluster", "-m", "ansible.builtin.ping"]
        return timed(command, ROOT, self.environment)


def sitting(machines: Machines, count: int, repeat: int) -> dict[str, Any]:
    """Return the costs of each kind of run over so many machines, repeats in a list."""
    without = ("-e", "verify_all_reduce=false")
    machines.up()
    try:
        costs: dict[str, list[Cost]] = {"first": [machines.provision()]}
        for name in ("ping", "second", "second_with_sum"):
            costs[name] = []
        for _ in range(repeat):
            costs["ping"].append(machines.ping())
            costs["second"].append(machines.provision(*without))
        costs["second_with_sum"].append(machines.provision())
    finally:
        machines.down()
    said = {name: [asdict(cost) for cost in measured] for name, measured in costs.items()}
    return {"machines": count, **said}


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of each number of machines."""
    sittings = [
        sitting(Machines(count, folder, given.python), count, given.repeat)
        for count in given.machines
    ]
    return {"ansible": version("ansible-core"), "sittings": sittings}


def main() -> int:
    """Run the command line; return the exit status."""
    bench = Bench("provision", __doc__, table, lab=True)
    bench.option("--machines", type=int, nargs="+", default=[3, 10], metavar="N")
    bench.option("--repeat", type=int, default=3, help="second runs a size (default: 3)")
    bench.option(
        "--python",
        default="/opt/lab/venv/bin/python",
        help="hearth_python of the machines (default: %(default)s, which needs no installation)",
    )
    return bench.run(measure)


if __name__ == "__main__":
    sys.exit(main())
