"""A lab of a bench's own, beside one that may be up, and the plays over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from hearth_lab import plan

ROOT = Path(__file__).resolve().parents[2]
NAME = "bench"


class CommandFailed(Exception):
    """A measured command did not end well: its figures would mean nothing."""


class Lab:
    """`count` machines with their inventory, in `folder`."""

    def __init__(self, machines: int, folder: Path, python: str) -> None:
        self.names = [node.name for node in plan.nodes(machines)]
        self._python = python
        self.inventory = folder / f"{machines}"
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LC_ALL": "C.UTF-8",
            "HEARTH_LAB": NAME,
            "PYTHONPATH": str(ROOT / "training"),
        }
        shutil.copytree(ROOT / "inventory" / "lab", self.inventory)
        self.play_on(machines)

    def play_on(self, count: int) -> None:
        """Have the inventory name the lab's first machines."""
        hosts = {node.name: {"cluster_address": node.address} for node in plan.nodes(count)}
        text = yaml.safe_dump({"cluster": {"hosts": hosts}}, sort_keys=False)
        (self.inventory / "hosts.yml").write_text(text)

    def up(self) -> None:
        self.do("up", "--nodes", str(len(self.names)))

    def down(self) -> None:
        self.do("down")

    @contextmanager
    def ready(self, link: str) -> Iterator[None]:
        """Have the machines booted and provisioned, on cables of this speed."""
        os.environ["HEARTH_LAB"] = NAME  # by which what is imported next knows the lab
        try:
            self.up()
            self.play("playbooks/provision/preflight.yml")
            self.play("playbooks/provision/workspace.yml")
            for node in self.names:
                self.do("link", node, link)
            yield
        finally:
            self.down()

    def do(self, *words: str) -> None:
        subprocess.run(
            [ROOT / "scripts" / "lab", *words], env=self.environment, check=True, timeout=900
        )

    def playbook(self, name: str, *words: str) -> list[str]:
        python = ("-e", f"hearth_python={self._python}")
        return ["ansible-playbook", "-i", str(self.inventory), name, *python, *words]

    def play(self, name: str, *words: str) -> str:
        return run(self.playbook(name, *words), ROOT, self.environment)


def run(command: Sequence[str], cwd: Path, environment: dict[str, str]) -> str:
    """Run a command that must end well, and return its output.

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
