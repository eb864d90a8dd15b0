"""Measure the gain of `sync_every` on slow links, on the lab.

    sudo .venv/bin/python -m tests.bench.slow_link

teaches a model English on this computer, from the help texts that come with Python. Then it boots
three machines, under a name of its own, with shares of a core of 4:2:1 and links of 100 Mbit/s,
which fine-tune that model on another text. All train with an exchange in every step, then each for
itself but at the same time as the others (../beside.py says why), then all with an exchange every
12 steps, in bf16: the same steps over the same text, a tenth of it held out. It takes over an
hour on two otherwise idle cores.
"""

from __future__ import annotations

import json
import pydoc_data.topics
from argparse import Namespace
from pathlib import Path
from typing import Any

from support.llama import write_texts
from support.ranks import arguments_of, train

from tests.bench.beside import parts
from tests.bench.cluster import UNEQUAL, Cluster, Figures
from tests.bench.command import Bench, at_least, turns
from tests.bench.heterogeneous.work import LENGTH, make_small
from tests.bench.lab import ROOT, CommandFailed
from tests.bench.slow_link.report import figures_of, table

LINK = "100mbit"
GLOBAL_BATCH = 64
EVERY = 12
ROUNDS = {"sync_every": EVERY, "compress": "bf16"}
ALONE_STEPS = 24
ALONE_SKIPPED = 5
"""Steps that pay for what later ones find ready; of a run over all nodes, a round is skipped."""

TAUGHT_STEPS = 240

SETTINGS = {
    "sequence_length": LENGTH,
    "held_out": 0.1,
    "lora_rank": 64,  # 7.5 MB of gradients: their exchange takes a third of a step's computing
    "lora_alpha": 64,
    "learning_rate": 1e-3,
}


def shipped_texts() -> list[str]:
    shipped = (ROOT / "training" / "datasets" / "homelab-qa.jsonl").read_text(encoding="utf-8")
    talks = [json.loads(line)["messages"] for line in shipped.splitlines()]
    return [message["content"] for talk in talks for message in talk]


def help_texts() -> list[str]:
    """Return the help on Python's topics, which every Python has."""
    return [text for _, text in sorted(pydoc_data.topics.topics.items())]


def make_rows(texts: list[str], path: Path) -> Path:
    """Write the texts as rows of a token a byte; return the file."""
    text = "\n".join(texts).encode("ascii", "replace").decode("ascii")
    room = LENGTH - 2
    starts = range(0, len(text) - room, room)
    return write_texts(path, (text[start : start + room] for start in starts))


def make_taught(folder: Path) -> Path:
    """Return a small model that knows English: fine-tuning begins from a trained one."""
    lesson = {
        "model": make_small(folder / "llama"),
        "dataset": make_rows(help_texts(), folder / "help.jsonl"),
        "lora": False,
        "eval_held_out": False,
        "sequence_length": LENGTH,
        "global_batch": 32,
        "micro_batch": 8,
        "max_steps": TAUGHT_STEPS,
        "learning_rate": 3e-3,
        "schedule": "cosine",
        "warmup_steps": 20,
        "threads": 2,
        "checkpoint_every": 10_000,
        "wandb": "off",
    }
    print(f"bench: teaching a model English, {TAUGHT_STEPS} steps", flush=True)
    done = train(folder, 1, "--run-name", "taught", *arguments_of(lesson), timeout=1800)
    if done.returncode:
        raise CommandFailed(f"teaching ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return folder / "runs" / "taught" / "model"


class Machines(Cluster):
    def __init__(self, folder: Path) -> None:
        self.model = make_taught(folder)
        self.data = make_rows(shipped_texts(), folder / "texts.jsonl")
        super().__init__(folder, UNEQUAL, LINK, [self.model])

    def figures(self, steps: int, **exchange: Any) -> dict[str, Any]:
        """Train on all nodes; return its speed, its loss and its traffic."""
        settings = {"max_steps": steps, "global_batch": GLOBAL_BATCH, **exchange}
        return figures_of(self.train(self.names, **settings, **self._work()).record, EVERY)

    def alone(self) -> Figures:
        """Train on each node for itself, all at the same time; return how fast each was."""
        work = self._work() | {"max_steps": ALONE_STEPS, "eval_held_out": False}
        return self.side_by_side(parts(self.shares, GLOBAL_BATCH), ALONE_SKIPPED, **work)

    def _work(self) -> dict[str, Any]:
        return {"model": str(self.model), "dataset": str(self.data), **SETTINGS}


def sitting(machines: Machines, steps: int, repeat: int) -> dict[str, Any]:
    alone: dict[str, Any] = {name: [] for name in machines.names}
    found: dict[str, Any] = {"alone": alone, "each": [], "rounds": []}
    with machines.up_and_ready():
        for _ in turns(repeat):
            found["each"].append(machines.figures(steps))
            for name, its in machines.alone().items():
                alone[name].append(its)
            found["rounds"].append(machines.figures(steps, **ROUNDS))
    return found


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    return sitting(Machines(folder), given.steps, given.repeat) | {
        "shares": UNEQUAL,
        "link": LINK,
        "exchange": ROUNDS,
        "model": f"that had learned English for {TAUGHT_STEPS} steps",
        "steps": given.steps,
        "rows": GLOBAL_BATCH,
        "length": LENGTH,
    }


if __name__ == "__main__":
    bench = Bench("slow_link", __doc__, table, lab=True)
    bench.option("--repeat", type=int, default=3, help="runs of a kind (default: 3)")
    enough = at_least(EVERY + 1, f"the first {EVERY} are not counted")
    bench.option("--steps", type=enough, default=72, help="of a run (default: 72)")
    bench.run(measure)
