"""The two engines that are compared: three nodes of each on loopback; one is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from support.assembly import Assembly, Pace
from support.supervisors import free_port

from hearth.supervisor.spec import Spec
from tests.bench.elastic.report import Step
from tests.bench.heterogeneous.work import LENGTH
from tests.bench.lab import CommandFailed

NODES = 3
LEAST = 2
LEADER, WORKER = 0, 1
ROWS = NODES
"""Rows of a step of all; under torchft each replica has its own one of them."""

LOAD = 20.0
"""Seconds that a stand-in of a large model takes to load, under both."""


class Hearth(Assembly):
    """Three supervisors with Hearth's own trainer, with the times that it ships with."""

    def __init__(self, folder: Path, model: Path, data: Path) -> None:
        shipped = {
            name: getattr(Spec, name)
            for name in ("ready_timeout", "silence_timeout", "return_timeout")
        }
        work: dict[str, Any] = {
            "model": str(model), "dataset": str(data), "sequence_length": LENGTH, "lora_rank": 8,
            "global_batch": ROWS, "max_steps": 100_000, "eval_held_out": False, "wandb": "off",
        }  # fmt: skip
        super().__init__(folder, work, NODES, Pace(load=LOAD), **shipped)

    def take(self, node: int, silent: bool) -> None:
        """Kill (-9) or stop (SIGSTOP) supervisor, torchrun and rank of one node."""
        if silent:
            self.freeze(self.names[node])
        else:
            self.lose(self.names[node])

    def bring_back(self, node: int) -> None:
        """Start a node that was lost, whose machine was switched off if it was silent."""
        self.lose(self.names[node])
        self.start(self.names[node])

    def seen_by(self, node: int) -> list[Step]:
        """Return the steps on a node's record."""
        steps, together = [], NODES
        for line in self.lines(self.names[node]):
            if line["kind"] == "team":
                together = len(line["nodes"])
            elif line["kind"] == "step":
                at = datetime.fromisoformat(line["time"]).timestamp()
                steps.append(Step(at, line["step"], together))
        return steps

    def said_by(self, node: int) -> Path:
        """Return the file of what a node said."""
        return self.workspace(self.names[node]) / "logs/first.log"


class Torchft:
    """A lighthouse and three replica groups of one rank, with torchft's defaults."""

    def __init__(self, folder: Path, model: Path, data: Path, python: Path) -> None:
        folder.mkdir()
        self._folder, self._work, self._python = folder, (model, data), python
        self._address = f"127.0.0.1:{free_port()}"
        self._lighthouse: subprocess.Popen[bytes] | None = None
        self._replicas: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        self._shine()
        for number in range(NODES):
            self._replica(number)

    def take(self, node: int, silent: bool) -> None:
        """Kill (-9) or stop (SIGSTOP) one replica, with node 0 the lighthouse, too."""
        for process in self._on(node):
            process.send_signal(signal.SIGSTOP if silent else signal.SIGKILL)

    def bring_back(self, node: int) -> None:
        """Start a node that was lost, whose machine was switched off if it was silent."""
        for process in self._on(node):
            process.kill()
            process.wait(10)
        if node == LEADER:
            self._shine()
        self._replica(node)

    def seen_by(self, node: int) -> list[Step]:
        """Return the steps that counted, on a replica's record."""
        return [Step(**line) for line in _lines(self._folder / f"{node}.jsonl")]

    def said_by(self, node: int) -> Path:
        """Return the file of what a replica said."""
        return self._folder / f"{node}.log"

    def _on(self, node: int) -> list[subprocess.Popen[bytes]]:
        """Return the processes on a node; the lighthouse is on the leader's."""
        lighthouse = [self._lighthouse] if node == LEADER and self._lighthouse else []
        return [self._replicas[node], *lighthouse]

    def close(self) -> None:
        begun = [each for each in (*self._replicas.values(), self._lighthouse) if each]
        for process in begun:
            process.kill()
        for process in begun:
            process.wait(10)

    def _shine(self) -> None:
        program = self._python.with_name("torchft_lighthouse")
        words = ("--bind", self._address, "--min_replicas", str(LEAST))
        self._lighthouse = self._begin("lighthouse", program, *words)

    def _replica(self, number: int) -> None:
        record = self._folder / f"{number}.jsonl"
        code = Path(__file__).with_name("replica.py")
        words = (code, number, *self._work, record, f"http://{self._address}", LOAD)
        self._replicas[number] = self._begin(str(number), self._python, *words)

    def _begin(self, name: str, *words: object) -> subprocess.Popen[bytes]:
        told = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*map(str, words)], env={**os.environ, **told}, stdout=log, stderr=log
            )


def install_torchft(folder: Path, version: str) -> Path:
    """Make a venv with torchft over the packages that this Python has; return its Python."""
    python = folder / "bin" / "python"
    make = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    add = [sys.executable, "-m", "pip", "--python", str(python)]
    add += ["install", "--quiet", "--no-deps", f"torchft=={version}"]
    if subprocess.run(make, timeout=60).returncode:
        raise CommandFailed("no venv could be made")
    within = next((folder / "lib").glob("python*")) / "site-packages"
    (within / "this.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if subprocess.run(add, timeout=300).returncode:
        raise CommandFailed(f"torchft {version} cannot be installed")
    return python


def until(
    engine: Hearth | Torchft,
    node: int,
    what: str,
    wanted: Callable[[Step], bool],
    seconds: float = 180,
) -> Step:
    """Return the first step on a node's record that is as wanted."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = next((step for step in engine.seen_by(node) if wanted(step)), None)
        if found:
            return found
        time.sleep(0.2)
    file = engine.said_by(node)
    said = file.read_text()[-2000:] if file.exists() else ""
    raise CommandFailed(f"no step {what} within {seconds:g} s\n{said}")


def _lines(file: Path) -> list[dict]:
    """Return the whole lines of a record that may be written right now."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    return []
