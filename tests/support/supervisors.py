"""Real supervisors on loopback, each with a workspace of its own and all of them ended after."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from hearth.config import Run, write_run
from hearth.config.layout import staged_name
from hearth.lend.choice import AUTO, OFF, LendChoice, write
from hearth.supervisor.record import read_record
from support.programs import at_work_in
from support.waiting import HANG, until

TRAINING = Path(__file__).resolve().parents[2] / "training"
TOKEN = "secret-of-this-run-only"

LOOP = """
import os, sys, time
from pathlib import Path
told = f"generation {os.environ['HEARTH_GENERATION']} rank {os.environ['RANK']}"
for step in range(int(os.environ.get("STEPS", 100000))):
    print(f"{told} step {step}\\n", end="", flush=True)  # one write: others share the log
    if Path("stop").exists() or Path("enough").exists():
        sys.exit(0)
    time.sleep(0.05)
"""
"""A script of a rank that takes steps until it is asked to stop, or has taken STEPS."""

STAND_IN = '''\
#!{python}
"""Stands in for torchrun: starts the ranks in sessions of their own."""
import os, signal, subprocess, sys

options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
script = next(word for word in sys.argv if word.endswith("train.py"))
ranks = [
    subprocess.Popen(
        [sys.executable, script, *sys.argv[-2:]],
        env={{**os.environ, "RANK": options["--node-rank"]}},
        start_new_session=True,
    )
    for _ in range(int(options["--nproc-per-node"]))
]

def forward(sign, frame):
    for rank in ranks:
        os.killpg(rank.pid, sign)
    os._exit(1)

signal.signal(signal.SIGTERM, forward)
sys.exit(max(abs(rank.wait()) for rank in ranks))
'''


class Nodes:
    """The nodes `node0`, `node1` … of one run, on 127.0.0.1, 127.0.0.2 …

    Several runs may have nodes in the same folder, all with the same script.
    """

    def __init__(
        self, folder: Path, count: int, script: str, run: str = "first", **settings: Any
    ) -> None:
        self.names = [f"node{n}" for n in range(count)]
        self.run, self.created = run, "2026-11-20T10:00:00+00:00"
        self.options: tuple[str, ...] = ()  # of a supervisor, besides its spec
        self.variables: dict[str, str] = {}  # of a supervisor's environment
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        stand_in = folder / "stand-in-torchrun"
        stand_in.write_text(STAND_IN.format(python=sys.executable))
        stand_in.chmod(0o755)
        ports = [free_port() for _ in self.names]
        for rank, name in enumerate(self.names):
            code = self.workspace(name) / "scripts"
            code.mkdir(parents=True, exist_ok=True)
            (code / "train.py").write_text(script)
            spec = {
                "run": self.run,
                "node": name,
                "rank": rank,
                "nodes": self.names,
                "addresses": [f"127.0.0.{number}" for number in range(1, count + 1)],
                "ports": ports,
                "nproc": 1,
                "nprocs": [settings.get("nproc", 1)] * count,
                "python": str(stand_in),
                "workspace": str(self.workspace(name)),
                "token": TOKEN,
                "ready_timeout": 30,
                "silence_timeout": 10,
                "return_timeout": 0,
                "script": "scripts/train.py",
                "unit": False,
                "environment": {"OMP_NUM_THREADS": "1"},
            }
            self.spec(name).write_text(json.dumps({**spec, **settings}))

    def workspace(self, node: str) -> Path:
        return self._folder / node

    def spec(self, node: str) -> Path:
        return self._folder / f"{self.run}-{node}.json"

    def wrapping(self, node: str) -> list[str]:
        """Return the words that a node's command begins with; none unless a subclass has some."""
        return []

    def change(self, name: str, **values: Any) -> None:
        given = json.loads(self.spec(name).read_text())
        self.spec(name).write_text(json.dumps({**given, **values}))

    def stage_trainer(self, run: Run, data: Path) -> None:
        """Give each node the real training code, this run and its `data` file."""
        skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
        for node in self.names:
            self.change(node, script="scripts/train_distributed.py")
            workspace = self.workspace(node)
            shutil.copytree(TRAINING, workspace / "scripts", dirs_exist_ok=True, ignore=skip)
            (workspace / "data").mkdir()
            assert run.dataset_sha256
            shutil.copy(data, workspace / "data" / staged_name(run.dataset_sha256, str(data)))
            write_run(run, workspace / "results/first/run.yml")

    def want(self, node: str) -> None:
        """Let the owner want a node's machine, as a person says with `hearth-lend off`."""
        write(self.workspace(node), LendChoice(OFF))

    def let_go(self, node: str) -> None:
        """Let the owner have done with a node's machine."""
        write(self.workspace(node), LendChoice(AUTO))

    def end_job(self) -> None:
        """Send SIGTERM to every process, as Slurm does to those of a job."""
        first = [psutil.Process(self.supervisor(node).pid) for node in self.names]
        below = [each for process in first for each in process.children(recursive=True)]
        for process in (*first, *below):  # all listed before, so that they hear of it at once
            with suppress(psutil.NoSuchProcess):
                process.terminate()

    def start(self, *nodes: str) -> None:
        for node in nodes or self.names:
            self._children[node] = subprocess.Popen(
                [
                    *self.wrapping(node),
                    *(sys.executable, "-m", "hearth.supervisor", "run"),
                    *("--spec", str(self.spec(node)), *self.options),
                ],
                env={
                    **{"PATH": os.environ["PATH"], "PYTHONPATH": str(TRAINING)},
                    **self.variables,
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def verb(self, *words: object) -> tuple[int, dict[str, Any]]:
        """Run another verb of the command line; return its status and its answer."""
        return self._answer("hearth.supervisor", *words)

    def inspect(self, node: str) -> tuple[int, dict[str, Any]]:
        """Inspect a node for the run of its spec, as a launch does first."""
        spec = json.loads(self.spec(node).read_text())
        port = spec["ports"][spec["rank"]]
        address = spec["addresses"][spec["rank"]]
        wanted = {"run": spec["run"], "address": address, "port": port}
        run_file, wants = self._folder / "run.yml", self._folder / "wanted.json"
        run_file.write_text(f"run: {spec['run']}\ncreated: '{self.created}'\n")
        wants.write_text(json.dumps(wanted))
        place = {"HEARTH_WORKSPACE": str(self.workspace(node))}
        words = ("inspect", "--run-file", run_file, "--spec", wants)
        return self._answer("hearth.node", *words, **place)

    def _answer(self, module: str, *words: object, **variables: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", module, *map(str, words)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(TRAINING), **variables},
            capture_output=True,
            text=True,
            timeout=HANG,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    def status(self, node: str) -> dict[str, Any]:
        return read_record(self.workspace(node), self.run)

    def stop(self, node: str, *options: str) -> dict[str, Any]:
        words = ("stop", "--workspace", self.workspace(node), "--run", self.run, *options)
        return self.verb(*words)[1]

    def record(self, node: str) -> dict[str, Any]:
        place = self.workspace(node) / "results" / self.run
        return json.loads((place / "supervisor.json").read_text())

    def log(self, node: str) -> str:
        return (self.workspace(node) / "logs" / f"{self.run}.log").read_text()

    def kill(self, node: str) -> None:
        """Kill the supervisor of a node, and wait until it is gone."""
        self._children[node].kill()
        self._children[node].wait(10)

    def supervisor(self, node: str) -> subprocess.Popen[bytes]:
        return self._children[node]

    def wait(self, *nodes: str) -> dict[str, dict[str, Any]]:
        for node in nodes or self.names:
            self._children[node].wait(HANG)
        return {node: self.record(node) for node in nodes or self.names}

    def until_steps(self, *nodes: str) -> None:
        until(lambda: all("step 2" in self.log(node) for node in nodes or self.names))

    def until_down(self, *nodes: str) -> float:
        """Wait until no process of these nodes' ranks lives; return how many seconds it took."""
        started = time.monotonic()
        until(lambda: not any(self.processes(node) for node in nodes or self.names))
        return time.monotonic() - started

    def processes(self, node: str) -> list[psutil.Process]:
        """Return torchrun and the ranks of a node, wherever they went."""
        return at_work_in(self.workspace(node))

    def torchrun(self, node: str) -> psutil.Process:
        return psutil.Process(self.supervisor(node).pid).children()[0]

    def rank(self, node: str) -> psutil.Process:
        return self.torchrun(node).children()[0]

    def close(self) -> None:
        """End every process that the test started, each by its id."""
        for child in self._children.values():
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGCONT)
            child.kill()
            child.wait(10)
        for node in self.names:
            with suppress(OSError, ValueError, psutil.Error):
                started = psutil.Process(self.record(node)["pid"])
                if str(self.spec(node)) in started.cmdline():
                    started.kill()
            for process in self.processes(node):
                with suppress(psutil.Error):
                    process.kill()


def free_port() -> int:
    """Return a free port below those that connections are given, which any other may take at once.

    Linux gives them from 32768 upwards.
    """
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))  # of no address in use: nodes have 127.0.0.2 and so on
            return port
