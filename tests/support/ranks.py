"""Real ranks on loopback: the trainer's script under torchrun, in processes of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).resolve().parents[2] / "training"
SCRIPT = TRAINING / "train_distributed.py"


def environment(cwd: Path) -> dict[str, str]:
    """Return the environment of a person by hand, with caches and runs of the test's own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(cwd),
        "XDG_CACHE_HOME": str(cwd / "cache"),
        "PYTHONPATH": str(TRAINING),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def command(ranks: int, *arguments: object) -> list[str]:
    """Return the command that trains with `ranks` ranks; one rank goes without torchrun."""
    launcher = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={ranks}",
    ]
    return [sys.executable, *(launcher if ranks > 1 else []), str(SCRIPT), *map(str, arguments)]


def train(
    cwd: Path, ranks: int, *arguments: object, timeout: float = 100, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run the trainer in `cwd` and return how it ended; nothing of it outlives the call."""
    process = subprocess.Popen(
        command(ranks, *arguments),
        cwd=cwd,
        env=environment(cwd) | changes,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(10)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def metrics(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """Return the records of one kind in a run's metrics.jsonl."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [record for line in lines if (record := json.loads(line))["kind"] == kind]
