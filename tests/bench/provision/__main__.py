"""Measure provision.yml on the lab, beside a ping of the same machines.

    sudo .venv/bin/python -m tests.bench.provision

boots the lab twice, under a name of its own: 3 machines and then 10, bare. Each is provisioned,
then provisioned again as often as asked, with a ping before each. It writes the raw figures beside
itself and the table into docs/benchmarks.md. The machines take their packages from this computer's
.venv (--python), so the first run is without what a download costs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from tests.bench.provision.measure import CommandFailed, Cost, timed
from tests.bench.provision.report import put, table

ROOT = Path(__file__).resolve().parents[3]
FIGURES = Path(__file__).with_name("figures.json")
DOCUMENT = ROOT / "docs" / "benchmarks.md"
TITLE = "# Benchmarks\n\n## What provisioning costs\n\n`python -m tests.bench.provision`\n"


class Bench:
    """A lab of the bench's own, and the plays over it."""

    def __init__(self, machines: int, folder: Path, python: str) -> None:
        self._machines, self._python = machines, python
        self._inventory = folder / f"{machines}"
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "HEARTH_LAB": "bench",
            "PYTHONPATH": str(ROOT / "training"),
        }
        shutil.copytree(ROOT / "inventory" / "lab", self._inventory)
        self._write_hosts()

    def _write_hosts(self) -> None:
        """Give the inventory the lab's first machines; its own has three."""
        sys.path.insert(0, str(ROOT / "scripts"))
        from hearth_lab import plan

        hosts = {
            node.name: {"cluster_address": node.address} for node in plan.nodes(self._machines)
        }
        text = yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False)
        (self._inventory / "hosts.yml").write_text(text)

    def up(self) -> None:
        """Boot the machines, bare."""
        self._lab("up", "--nodes", str(self._machines))

    def down(self) -> None:
        """Take the lab away."""
        self._lab("down")

    def _lab(self, *words: str) -> None:
        subprocess.run(
            [ROOT / "scripts" / "lab", *words], env=self._environment, check=True, timeout=900
        )

    def provision(self, *words: str) -> Cost:
        """Provision all machines once."""
        python = ("-e", f"hearth_python={self._python}")
        command = ["ansible-playbook", "-i", str(self._inventory), "provision.yml", *python, *words]
        return timed(command, ROOT, self._environment)

    def ping(self) -> Cost:
        """Ping all machines once."""
        command = ["ansible", "-i", str(self._inventory), "cluster", "-m", "ansible.builtin.ping"]
        return timed(command, ROOT, self._environment)


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


def computer() -> str:
    """Return the processor and its cores, in words."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores of {names[0] if names else platform.machine()}"


def hearth_commit() -> str:
    """Return the commit that is measured, and whether it had been changed."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "without git"


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
    figures = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "computer": computer(),
        "ansible": version("ansible-core"),
        "hearth": hearth_commit(),
        "sittings": sittings,
    }
    print(table(figures))
    if not given.dry:
        FIGURES.write_text(json.dumps(figures, indent=1) + "\n")
        text = DOCUMENT.read_text() if DOCUMENT.exists() else TITLE
        DOCUMENT.write_text(put(text, table(figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
