"""The real plays on the local inventory, with a home, workspaces and runs of a test's own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from support.programs import at_work_in
from support.repository import ROOT
from support.waiting import HANG, until

NODES = ("desk", "laptop")
UNTIL_A_LOSS = ("-e", "launch_return_timeout=0", "-e", "launch_silence_timeout=60")
"""Words of a run that ends with the first loss of a node; a busy core is none."""
ROW_SECONDS = 0 if "HEARTH_RECORD" in os.environ else 0.05  # a bench measures what there is
TINY = {
    "sequence_length": 96,
    "lora_rank": 4,
    "packing": True,
    "global_batch": 4,
    "epochs": 1,
    "micro_batch": 1,
    "split": "equal",
    "learning_rate": 0.01,
    "wandb": "off",
}


def ended(play: subprocess.Popen[str], status: int | None = 0) -> str:
    """Return the screen of a play once it has ended with this exit status; None: any but 0."""
    try:
        screen, _ = play.communicate(timeout=HANG)
    finally:
        if play.poll() is None:
            for process in (*psutil.Process(play.pid).children(recursive=True), play):
                process.kill()
            play.wait(10)
    print(screen)
    assert play.returncode == status or (status is None and play.returncode)
    return screen


# Added to the trainer's code of a local cluster.
_AS_A_LARGE_MODEL = """

def _as_a_large_model(gradients):
    def slowly(self, own, *given, **named):
        time.sleep(ROW_SECONDS * len(own))
        return gradients(self, own, *given, **named)

    return slowly


Compute.gradients = _as_a_large_model(Compute.gradients)
"""

# Added to the supervisor's code of a local cluster.
_PATIENT = f"LEAST = SILENT = {HANG}.0\n"


class LocalCluster:
    """One computer as two nodes: what a person would have after `git clone`.

    The tiny model stands in for a large one: each row of a step takes `row_seconds` more, asleep. A
    run under way leaves the cores to the test.

    In a `patient` one no supervisor finds within a play or two that a suspended rank hangs.
    """

    def __init__(
        self,
        folder: Path,
        model: Path,
        data: Path,
        row_seconds: float = ROW_SECONDS,
        *,
        patient: bool = False,
    ) -> None:
        self.folder, self.model, self.data = folder, model, data
        self.checkout = folder / "hearth"
        self.runs = self.checkout / "runs"
        _copy_checkout(self.checkout)
        with (self.checkout / "training/hearth/trainer/compute.py").open("a") as code:
            code.write(_AS_A_LARGE_MODEL.replace("ROW_SECONDS", str(row_seconds)))
        if patient:
            with (self.checkout / "training/hearth/supervisor/ranks_watch.py").open("a") as code:
                code.write(_PATIENT)
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder / "home"),
            "LC_ALL": "C.UTF-8",
            "XDG_DATA_HOME": str(folder / "data"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "PYTHONPATH": f"{self.checkout / 'training'}:{self.checkout / 'controller'}",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "HEARTH_LAB": os.environ.get("HEARTH_LAB", ""),
        }
        (folder / "home").mkdir(parents=True)

    def workspace(self, node: str) -> Path:
        return self.folder / "data" / "hearth" / node

    def start(self, playbook: str, *arguments: object, **changes: str) -> subprocess.Popen[str]:
        """Begin a play in a session of its own, as a terminal would."""
        return subprocess.Popen(
            ["ansible-playbook", playbook, *map(str, arguments)],
            cwd=self.checkout,
            env=self.environment | changes,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def play(
        self, playbook: str, *arguments: object, status: int | None = 0, **changes: str
    ) -> str:
        """Play to the end; return what the screen showed (see `ended`)."""
        return ended(self.start(playbook, *arguments, **changes), status)

    def hearth(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the `hearth` command from another folder."""
        return self.call(Path(sys.executable).with_name("hearth"), *arguments, cwd=self.folder)

    def call(self, *words: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            list(map(str, words)),
            cwd=cwd or self.checkout,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        print(done.stdout, done.stderr)
        return done

    def train(self, *arguments: object, status: int = 0) -> str:
        """Play train.yml with the tiny model, the tiny data and small settings."""
        return self.play("train.yml", *self.tiny(), *arguments, status=status)

    def tiny(self, **settings: Any) -> list[str]:
        train = {"model": str(self.model), "dataset": str(self.data), **TINY, **settings}
        return ["-e", json.dumps({"train": train})]

    def record(self, node: str, run: str) -> dict[str, Any]:
        return json.loads((self.workspace(node) / "results" / run / "supervisor.json").read_text())

    def metrics(self, run: str) -> list[dict[str, Any]]:
        lines = (self.runs / run / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def processes(self, *nodes: str) -> list[psutil.Process]:
        """Return all processes that work in the workspaces of these nodes."""
        return at_work_in(*map(self.workspace, nodes or NODES))

    def rank(self, node: str) -> psutil.Process:
        """Return the process of a node's first rank; raise ValueError if it has none."""
        with suppress(psutil.NoSuchProcess):
            for launcher in self.launchers(node):
                for rank in launcher.children():
                    return rank
        raise ValueError(f"{node} has no rank")

    def launchers(self, node: str) -> list[psutil.Process]:
        """Return the node's torchruns."""
        found = []
        for process in self.processes(node):
            with suppress(psutil.NoSuchProcess):
                if "hearth.trainer.torchrun" in process.cmdline():
                    found.append(process)
        return found

    def until_step(self, run: str, step: int = 2) -> None:
        """Wait until rank 0 has written this step."""
        path = self.workspace("desk") / "results" / run / "metrics.jsonl"
        until(lambda: f'"step": {step},' in path.read_text())

    def close(self) -> None:
        """End every process of these workspaces, each by its id."""
        for _ in range(3):
            processes = self.processes()
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(processes, timeout=5)


def _copy_checkout(target: Path) -> None:
    """Copy what the plays need, so that their defaults are those of a fresh clone."""
    code = ("playbooks", "roles", "plugins", "training", "controller", "scripts")
    for room in (*code, "inventory", "requirements"):
        shutil.copytree(
            ROOT / room, target / room, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for file in ("ansible.cfg", "train.yml", "provision.yml"):
        shutil.copy(ROOT / file, target / file)
