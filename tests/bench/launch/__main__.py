"""Measure the way from the command to the first step: by hand with torchrun, and by train.yml.

    .venv/bin/python -m tests.bench.launch

trains a tiny model for two steps with two ranks on loopback, by turns with torchrun by hand
(`torchrun --nproc-per-node 2 training/train_distributed.py`) and with `train.yml`, after one turn
that fills the caches. Then it counts the tasks of one more `train.yml`, the programs that it
executes (with strace) and the interpreters of Hearth among them. It takes two minutes on two
otherwise idle cores.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from support.local_cluster import NODES, TINY, LocalCluster
from support.ranks import arguments_of
from support.tiny_model import make_model

from tests.bench.command import Bench, at_least
from tests.bench.lab import CommandFailed
from tests.bench.paper import aim, measured

STEPS = 2
LONGEST = 300.0
"""A command that takes these seconds counts as hung."""

AIMS = {"tasks": 30, "processes": 150, "interpreters_per_node": 3}
"""The most of each for a run of two steps on two nodes."""

TIMES = 1.5
"""Longest time until the first step, in times of that by hand."""


def timed(
    command: list[str], record: Path, folder: Path, environment: Mapping[str, str]
) -> dict[str, float]:
    """Run a command; return the seconds until its first step is in `record`, and until its end."""
    began, first = time.monotonic(), None
    with (folder / "screen").open("w") as screen:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=screen, stderr=screen
        )
        while process.poll() is None and time.monotonic() - began < LONGEST:
            if first is None and record.exists() and '"kind": "step"' in record.read_text():
                first = time.monotonic() - began
            time.sleep(0.02)
    if process.poll() is None:
        process.kill()
    if process.wait() or first is None:
        raise CommandFailed((folder / "screen").read_text()[-2000:])
    return {"first_step": first, "end": time.monotonic() - began}


class Contest:
    """The two ways to train the same thing, each with a run of its own every time."""

    def __init__(self, folder: Path) -> None:
        model, data = folder / "tiny", folder / "words.jsonl"
        make_model(model)
        data.write_text("".join(f'{{"text": "word {n} of many"}}\n' for n in range(200)))
        self.local = LocalCluster(folder / "house", model, data, row_seconds=0)
        self.turn = 0

    def by_hand(self) -> dict[str, float]:
        self.turn += 1
        name = f"hand{self.turn}"
        settings = {**TINY, "model": self.local.model, "dataset": self.local.data}
        settings |= {"max_steps": STEPS, "run_name": name}
        script = self.local.checkout / "training" / "train_distributed.py"
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        record = self.local.checkout / "runs" / name / "metrics.jsonl"
        command = [*torchrun, str(script), *arguments_of(settings)]
        return timed(command, record, self.local.checkout, self.local.environment)

    def play(self, *before: str, shown: str = "") -> dict[str, float]:
        """Return the seconds with train.yml; `before` are words in front of the command."""
        self.turn += 1
        run = f"play{self.turn}"
        settings = self.local.tiny(run=run, max_steps=STEPS)
        command = [*before, "ansible-playbook", "train.yml", *settings, *shown.split()]
        record = self.local.workspace(NODES[0]) / "results" / run / "metrics.jsonl"
        return timed(command, record, self.local.checkout, self.local.environment)

    def counts(self) -> dict[str, float]:
        """Return the number of tasks, executed programs, and interpreters of Hearth per node."""
        self.play(shown="-v")
        screen = (self.local.checkout / "screen").read_text()
        traced = self.local.folder / "execve"
        self.play("strace", "-f", "-qq", "-s", "300", "-e", "trace=execve", "-o", str(traced))
        lines = traced.read_text(errors="replace").splitlines()
        executed = [line for line in lines if line.endswith("= 0")]
        # A call that another process interrupts takes two lines, the first with its arguments.
        began = [line for line in lines if "execve(" in line and "= -1" not in line]
        ours = [line for line in began if '"hearth.' in line or "train_distributed.py" in line]
        return {
            "tasks": screen.count("\nTASK ["),
            "processes": len(executed),
            "interpreters_per_node": len(ours) / len(NODES),
        }


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    if not shutil.which("strace"):
        raise CommandFailed("strace is missing, which counts the programs")
    contest = Contest(folder)
    contest.by_hand()
    contest.play()
    hand, play = [], []
    for _ in range(given.repeat):
        hand.append(contest.by_hand())
        play.append(contest.play())
        print(f"bench: {hand[-1]['first_step']:.1f} s, {play[-1]['first_step']:.1f} s", flush=True)
    return {"hand": hand, "play": play, "counts": contest.counts(), "cores": os.cpu_count()}


def table(figures: Mapping[str, Any]) -> str:
    hand, play, counts = figures["hand"], figures["play"], figures["counts"]
    ratio = median(
        each["first_step"] / other["first_step"] for each, other in zip(play, hand, strict=True)
    )
    lines = [
        f"Two ranks on loopback, a tiny model, everything cached. {measured(figures)} Seconds, "
        f"medians of {len(hand)} turns.",
        "",
        "| | first step on record | command ends |",
        "|---|--:|--:|",
    ]
    for way, runs in (("by hand, with torchrun", hand), ("`train.yml`", play)):
        first, end = (median(run[name] for run in runs) for name in ("first_step", "end"))
        lines.append(f"| {way} | {first:.1f} | {end:.1f} |")
    words = f"First step within {TIMES} times that by hand"
    lines += ["", aim(words, ratio <= TIMES, f"{ratio:.2f}, median of the turns")]
    for name, most in AIMS.items():
        words = f"At most {most} {name.replace('_', ' ')}"
        lines.append(aim(words, counts[name] <= most, f"{counts[name]:g}"))
    return "\n".join(lines)


if __name__ == "__main__":
    bench = Bench("launch", __doc__, table)
    bench.option("--repeat", type=at_least(1, "a turn is needed"), default=3, help="turns")
    bench.run(measure)
