"""Measure how much of what a real model learns in float32 depends on how its steps are split.

    python -m tests.bench.exactness

trains SmolLM2 on this computer in one rank, then in one, two and three that take unequal parts of
the same steps, in smaller micro-batches. It writes the raw figures beside itself and the table into
docs/measurements.md. It takes about five minutes on two cores.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from support.ranks import arguments_of, beginning, change, learned, metrics, train_forked

from hearth.config import load_preset
from hearth.config.layout import Layout
from hearth.model.fetch import fetch_model
from tests.bench.command import Bench
from tests.bench.exactness.report import table
from tests.bench.lab import CommandFailed

MODEL = "smollm2-135m"
GLOBAL_BATCH = 7
WAYS = {
    "1 rank, 7 rows at once": (1, "equal", 7),
    "1 rank, 2 rows at once": (1, "equal", 2),
    "2 ranks, 2:1": (2, "2:1", 3),
    "3 ranks, 4:2:1": (3, "4:2:1", 2),
}
"""Ranks, split and micro-batch; the first is what the others are compared with."""


def settings_of(model: Path, steps: int) -> dict[str, Any]:
    """Return the settings that all runs have."""
    return {
        "model": str(model),
        "dataset": "homelab-qa",
        "sequence_length": 160,
        "packing": False,
        "lora_rank": 8,
        "lora_alpha": 16,
        "learning_rate": 2e-4,
        "optimizer": "adamw",
        "precision": "fp32",
        "global_batch": GLOBAL_BATCH,
        "max_steps": steps,
        "evaluate": False,
        "wandb": "off",
    }


def measured(model: Path, steps: int, folder: Path) -> list[dict[str, Any]]:
    """Train in each of the ways in this folder, and return how far each is from the first.

    Raises `CommandFailed` if one does not end well.
    """
    chosen = settings_of(model, steps)
    start = beginning(chosen)
    figures: list[dict[str, Any]] = []
    first: torch.Tensor | None = None
    for number, (name, (ranks, split, micro_batch)) in enumerate(WAYS.items()):
        run = f"way-{number}"
        how = ("--split", split, "--micro-batch", micro_batch, "--run-name", run)
        done = train_forked(folder, ranks, *arguments_of(chosen), *how, timeout=1200)
        if done.returncode:
            raise CommandFailed(f"{name}: {done.stderr[-2000:]}")
        changed = change(learned(folder, run), start)
        first = changed if first is None else first
        figures.append(
            {
                "way": name,
                "change": changed.norm().item(),
                "apart": (changed - first).norm().item(),
                "furthest": (changed - first).abs().max().item(),
                "losses": [step["loss"] for step in metrics(folder / "runs" / run, "step")],
            }
        )
        print(f"bench: {name}: done", flush=True)
    return figures


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of each way."""
    source = load_preset(MODEL).source(MODEL)
    model = fetch_model(source, Layout.from_environment().models).path
    return {"model": MODEL, "ways": measured(model, given.steps, folder)}


def main() -> int:
    """Run the command line; return the exit status."""
    bench = Bench("exactness", __doc__, table)
    bench.option("--steps", type=int, default=10, help="steps of a run (default: 10)")
    return bench.run(measure)


if __name__ == "__main__":
    sys.exit(main())
