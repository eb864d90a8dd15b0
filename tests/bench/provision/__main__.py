"""Measure provision.yml on the lab, beside a ping of the same machines.

    sudo .venv/bin/python -m tests.bench.provision

boots the lab twice, under a name of its own: 3 machines and then 10, bare. Each is provisioned,
then provisioned again as often as asked, with a ping before each. It writes the raw figures beside
itself and the table into docs/benchmarks.md. The machines take their packages from this computer's
.venv (--python), so the first run is without what a download costs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.bench.lab import ROOT, CommandFailed, Lab
from tests.bench.paper import circumstances, publish
from tests.bench.provision.measure import Cost, timed
from tests.bench.provision.report import table

FIGURES = Path(__file__).with_name("figures.json")


class Bench(Lab):
    """The machines, and what is timed on them."""

    def provision(self, *words: str) -> Cost:
        """Provision all machines once."""
        return timed(self.playbook("provision.yml", *words), ROOT, self.environment)

    def ping(self) -> Cost:
        """Ping all machines once."""
        command = ["ansible", "-i", str(self.inventory), "cluster", "-m", "ansible.builtin.ping"]
        return timed(command, ROOT, self.environment)


def sitting(bench: Bench, machines: int, repeat: int) -> dict[str, Any]:
    """Return the costs of each kind of run over so many machines, repeats in a list."""
    without = ("-e", "verify_all_reduce=false")
    bench.up()
    try:
        costs: dict[str, list[Cost]] = {"first": [bench.provision()]}
        for name in ("ping", "second", "second_with_sum"):
            costs[name] = []
        for _ in range(repeat):
            costs["ping"].append(bench.ping())
            costs["second"].append(bench.provision(*without))
        costs["second_with_sum"].append(bench.provision())
    finally:
        bench.down()
    said = {name: [asdict(cost) for cost in measured] for name, measured in costs.items()}
    return {"machines": machines, **said}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.provision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--machines", type=int, nargs="+", default=[3, 10], metavar="N")
    parser.add_argument("--repeat", type=int, default=3, help="second runs a size (default: 3)")
    parser.add_argument(
        "--python",
        default="/opt/lab/venv/bin/python",
        help="hearth_python of the machines (default: %(default)s, which needs no installation)",
    )
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("the lab needs root")
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as folder:
        try:
            sittings = [
                sitting(Bench(count, Path(folder), given.python), count, given.repeat)
                for count in given.machines
            ]
        except CommandFailed as error:
            print(f"bench: a measured command failed: {error}", file=sys.stderr)
            return 1
    figures = circumstances() | {"ansible": version("ansible-core"), "sittings": sittings}
    print(table(figures))
    if not given.dry:
        publish("provision", figures, FIGURES, table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
