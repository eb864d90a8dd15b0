"""The two engines that are compared: three nodes of each on loopback, one of which is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil
from support.supervisors import TRAINING, Nodes, free_port

from hearth.config import resolve_run, write_run
from hearth.config.layout import staged_name
from hearth.supervise.spec import Spec
from tests.bench.elastic.report import Step
from tests.bench.heterogeneous.work import LENGTH
from tests.bench.lab import CommandFailed

NODES = 3
LEAST = 2
VICTIM = 1
ROWS = NODES
"""Rows of a step of all; under torchft each replica has its own one of them."""


class Hearth(Nodes):
    """Three supervisors with Hearth's own trainer, elastic, with the times that it ships with."""

    def __init__(self, folder: Path, model: Path, data: Path) -> None:
        shipped = {
            name: getattr(Spec, name)
            for name in ("ready_timeout", "silence_timeout", "return_timeout")
        }
        settings = {
            "model": str(model), "dataset": str(data), "run": "first", "sequence_length": LENGTH,
            "lora_rank": 8, "global_batch": ROWS, "max_steps": 100_000, "evaluate": False,
            "wandb": "off",
        }  # fmt: skip
        folder.mkdir()
        run = resolve_run(settings, folder)
        super().__init__(
            folder, NODES, "", python=sys.executable, elastic=True, min_nodes=LEAST, **shipped
        )
        for node in self.names:
            self.change(node, script="scripts/train_distributed.py")
            workspace = self.workspace(node)
            left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(TRAINING, workspace / "scripts", dirs_exist_ok=True, ignore=left_out)
            (workspace / "data").mkdir()
            shutil.copy(data, workspace / "data" / staged_name(run.dataset_sha256 or "", str(data)))
            write_run(run, workspace / "results/first/run.yml")

    def lose(self) -> None:
        """Kill (-9) supervisor, torchrun and rank of one node."""
        lost = self.names[VICTIM]
        ranks = self.processes(lost)
        self.kill(lost)
        for process in ranks:
            with suppress(psutil.Error):
                process.kill()

    def again(self) -> None:
        self.start(self.names[VICTIM])

    def steps(self) -> list[Step]:
        """Return the steps on record, as the first node tells it."""
        lines = _lines(self.workspace(self.names[0]) / "results/first/metrics.jsonl")
        return [
            Step(_seconds(line["time"]), line["step"], len(line["rows_by_rank"]))
            for line in lines
            if line["kind"] == "step"
        ]

    def said(self) -> Path:
        """Return the file of what the first node said."""
        return self.workspace(self.names[0]) / "logs/first.log"


class Torchft:
    """A lighthouse and three replica groups of one rank, with torchft's defaults."""

    def __init__(self, folder: Path, model: Path, data: Path, python: Path) -> None:
        folder.mkdir()
        self._folder, self._work, self._python = folder, (model, data), python
        self._address = f"127.0.0.1:{free_port()}"
        self._lighthouse: subprocess.Popen[bytes] | None = None
        self._replicas: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        program = self._python.with_name("torchft_lighthouse")
        words = ("--bind", self._address, "--min_replicas", str(LEAST))
        self._lighthouse = self._begin("lighthouse", program, *words)
        for number in range(NODES):
            self._replica(number)

    def lose(self) -> None:
        """Kill (-9) one replica."""
        self._replicas[VICTIM].kill()
        self._replicas[VICTIM].wait(10)

    def again(self) -> None:
        self._replica(VICTIM)

    def steps(self) -> list[Step]:
        """Return the steps that counted, as the first replica tells it."""
        return [Step(**line) for line in _lines(self._folder / "0.jsonl")]

    def said(self) -> Path:
        """Return the file of what the first replica said."""
        return self._folder / "0.log"

    def close(self) -> None:
        begun = [each for each in (*self._replicas.values(), self._lighthouse) if each]
        for process in begun:
            process.kill()
        for process in begun:
            process.wait(10)

    def _replica(self, number: int) -> None:
        record = self._folder / f"{number}.jsonl"
        code = Path(__file__).with_name("replica.py")
        words = (code, number, *self._work, record, f"http://{self._address}")
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
    engine: Hearth | Torchft, what: str, wanted: Callable[[Step], bool], seconds: float = 180
) -> Step:
    """Return the first step of an engine that is as wanted."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = next((step for step in engine.steps() if wanted(step)), None)
        if found:
            return found
        time.sleep(0.2)
    said = engine.said().read_text()[-2000:] if engine.said().exists() else ""
    raise CommandFailed(f"no step {what} within {seconds:g} s\n{said}")


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def _lines(file: Path) -> list[dict]:
    """Return the whole lines of a record that may be written right now."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    return []
