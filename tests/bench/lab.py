"""A lab of a bench's own, beside one that may be up, and the plays over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = "bench"


class CommandFailed(Exception):
    """A measured command did not end well: its figures would mean nothing."""


class Lab:
    """So many machines with their inventory, which lies in `folder`."""

    def __init__(self, machines: int, folder: Path, python: str) -> None:
        self._machines, self._python = machines, python
        self.inventory = folder / f"{machines}"
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "HEARTH_LAB": NAME,
            "PYTHONPATH": str(ROOT / "training"),
        }
        shutil.copytree(ROOT / "inventory" / "lab", self.inventory)
        self._write_hosts()

    def _write_hosts(self) -> None:
        """Give the inventory the lab's first machines; its own has three."""
        from hearth_lab import plan

        hosts = {
            node.name: {"cluster_address": node.address} for node in plan.nodes(self._machines)
        }
        text = yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False)
        (self.inventory / "hosts.yml").write_text(text)

    def up(self) -> None:
        """Boot the machines, bare."""
        self.do("up", "--nodes", str(self._machines))

    def down(self) -> None:
        """Take the lab away."""
        self.do("down")

    def do(self, *words: str) -> None:
        """Call scripts/lab."""
        subprocess.run(
            [ROOT / "scripts" / "lab", *words], env=self.environment, check=True, timeout=900
        )

    def playbook(self, name: str, *words: str) -> list[str]:
        """Return the command that plays on these machines."""
        python = ("-e", f"hearth_python={self._python}")
        return ["ansible-playbook", "-i", str(self.inventory), name, *python, *words]

    def play(self, name: str, *words: str, cwd: Path = ROOT) -> str:
        """Play to the end, and return what the screen showed.

        Raises `CommandFailed` with the end of it.
        """
        return run(self.playbook(name, *words), cwd, self.environment)


def run(command: Sequence[str], cwd: Path, environment: dict[str, str]) -> str:
    """Run a command that must end well, and return what it said.

    Raises `CommandFailed` with the end of its output.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise CommandFailed(f"{' '.join(command)}\n{done.stdout[-4000:]}")
    return done.stdout
