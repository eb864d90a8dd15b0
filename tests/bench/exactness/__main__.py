"""Measure how much of what a real model learns in float32 depends on how its steps are split.

    python -m tests.bench.exactness

trains SmolLM2 on this computer in one rank, then in one, two and three that take unequal parts of
the same steps, in smaller micro-batches. It takes about five minutes on two cores.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from support.ranks import arguments_of, beginning, change, learned, metrics, train_forked

from hearth.config import load_preset
from hearth.config.layout import Layout
from hearth.model.fetch import fetch_model
from tests.bench.command import Bench
from tests.bench.lab import CommandFailed
from tests.bench.paper import aim, measured

MODEL = "smollm2-135m"
WAYS = {
    "1 rank, 7 rows at once": (1, "equal", 7),
    "1 rank, 2 rows at once": (1, "equal", 2),
    "2 ranks, 2:1": (2, "2:1", 3),
    "3 ranks, 4:2:1": (3, "4:2:1", 2),
}
"""Ranks, split and micro-batch; the first is what the others are compared with."""

SETTINGS = {
    "dataset": "homelab-qa",
    "sequence_length": 160,
    "packing": False,
    "lora_rank": 8,
    "lora_alpha": 16,
    "learning_rate": 2e-4,
    "optimizer": "adamw",
    "precision": "fp32",
    "global_batch": 7,
    "eval_held_out": False,
    "wandb": "off",
}
CHANGE_WITHIN = 1e-3
LOSS_WITHIN = 1e-5


def trained(settings: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Train in each of the ways in this folder, and return how far each is from the first."""
    start = beginning(settings)
    ways: list[dict[str, Any]] = []
    first: torch.Tensor | None = None
    for number, (name, (ranks, split, micro_batch)) in enumerate(WAYS.items()):
        run = f"way-{number}"
        how = ("--split", split, "--micro-batch", micro_batch, "--run-name", run)
        done = train_forked(folder, ranks, *arguments_of(settings), *how, timeout=1200)
        if done.returncode:
            raise CommandFailed(f"{name}: {done.stderr[-2000:]}")
        changed = change(learned(folder, run), start)
        first = changed if first is None else first
        ways.append(
            {
                "way": name,
                "change": changed.norm().item(),
                "apart": (changed - first).norm().item(),
                "furthest": (changed - first).abs().max().item(),
                "losses": [step["loss"] for step in metrics(folder / "runs" / run, "step")],
            }
        )
        print(f"bench: {name}: done", flush=True)
    return ways


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    source = load_preset(MODEL).source(MODEL)
    model = fetch_model(source, Layout.from_environment().models).path
    settings = {"model": str(model), "max_steps": given.steps, **SETTINGS}
    return {"model": MODEL, "ways": trained(settings, folder)}


def loss_apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference of two loss curves, relative to the first."""
    return max(abs(other / loss - 1) for loss, other in zip(losses, others, strict=True))


def table(figures: Mapping[str, Any]) -> str:
    first, *others = figures["ways"]
    lines = [
        f"CPU, gloo, float32, AdamW. {measured(figures)} {figures['model']}, "
        f"{len(first['losses'])} steps, compared with {first['way']}: Δ is what the parameters "
        "have changed since the beginning, Δ' the same in the other run.",
        "",
        "| | ‖Δ-Δ'‖ / ‖Δ‖ | largest difference of a parameter | loss curve, relative |",
        "|---|--:|--:|--:|",
    ]
    of_change = [way["apart"] / first["change"] for way in others]
    of_loss = [loss_apart(first["losses"], way["losses"]) for way in others]
    for way, changed, loss in zip(others, of_change, of_loss, strict=True):
        lines.append(f"| {way['way']} | {changed:.1e} | {way['furthest']:.1e} | {loss:.1e} |")
    changed, loss = max(of_change), max(of_loss)
    words = f"The change of the parameters within {CHANGE_WITHIN:g}"
    lines += ["", aim(words, changed <= CHANGE_WITHIN, f"{changed:.1e}")]
    lines.append(aim(f"The loss curve within {LOSS_WITHIN:g}", loss <= LOSS_WITHIN, f"{loss:.1e}"))
    return "\n".join(lines)


if __name__ == "__main__":
    bench = Bench("exactness", __doc__, table)
    bench.option("--steps", type=int, default=10, help="steps of a run (default: 10)")
    bench.run(measure)
