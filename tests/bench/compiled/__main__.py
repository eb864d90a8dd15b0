"""Measure what torch.compile of the layers gains and costs on a processor.

    python -m tests.bench.compiled

computes gradients of rows of unlike lengths with the first layers of SmolLM2 in one process with
one thread, by turns plain and compiled. It takes about five minutes on two cores.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch._dynamo.utils import counters
from transformers.utils import logging

from hearth.config import resolve
from hearth.data.rows import Batch
from hearth.model.backend import TrainableModel
from hearth.model.compilation import compile_layers
from hearth.model.load import load_model
from tests.bench.command import Bench, turns
from tests.bench.packing.__main__ import LAYERS, MODEL, first_layers
from tests.bench.paper import measured, spread

SHAPES = [(1, 200), (1, 333), (2, 128), (1, 512), (4, 77), (1, 400), (3, 90)]
"""Rows at once, and their tokens, of the micro-batches of a turn."""
CASES = {
    "LoRA of all linear layers": {"lora_rank": 8},
    "LoRA, gradient checkpointing": {"lora_rank": 8, "gradient_checkpointing": True},
    "whole model": {"lora": False},
}


def batch_of(rows: int, tokens: int) -> Batch:
    """Return rows of random tokens, of two documents each, which all carry loss."""
    ids = np.random.default_rng(tokens).integers(100, 40_000, (rows, tokens))
    positions = np.tile([*range(tokens // 3), *range(tokens - tokens // 3)], (rows, 1))
    return Batch(ids, ids, positions, [])


def turn(model: TrainableModel) -> tuple[float, torch.Tensor]:
    """Return the seconds of processor time of all SHAPES, and the sum of their gradients."""
    model.network.zero_grad()
    began = time.process_time()
    for rows, tokens in SHAPES:
        model.loss(batch_of(rows, tokens), rows * tokens).backward()
    seconds = time.process_time() - began
    return seconds, torch.cat([weight.grad.flatten() for _, weight in model.trainable()])


def compared(settings: Mapping[str, Any], path: Path, count: int) -> dict[str, Any]:
    """Return the seconds of `count` turns of each way, and what compiling took."""
    torch.compiler.reset()
    counters.clear()
    chosen = resolve({"model": str(path), **settings}).settings
    plain, compiled = (load_model(chosen, path, torch.device("cpu"), "fp32") for _ in range(2))
    base = compiled.network.get_base_model() if chosen.lora else compiled.network
    compile_layers(base)
    for one, other in zip(plain.trainable(), compiled.trainable(), strict=True):
        other[1].data.copy_(one[1])
    first, _ = turn(plain)
    with_compiling, gradient = turn(compiled)
    _, expected = turn(plain)
    ways: dict[str, list[float]] = {"plain": [], "compiled": []}
    for _ in turns(count):
        for way, model in (("plain", plain), ("compiled", compiled)):
            ways[way].append(round(turn(model)[0], 3))
    return {
        **ways,
        "compiling": round(with_compiling - first, 1),
        "versions": counters["stats"]["unique_graphs"],
        "apart": ((gradient - expected).norm() / expected.norm()).item(),
    }


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    path = first_layers(folder / "model")
    cases = {name: compared(settings, path, given.repeat) for name, settings in CASES.items()}
    return {"model": MODEL, "layers": LAYERS, "cases": cases}


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        f"CPU, one process, one thread, float32. {measured(figures)} The first "
        f"{figures['layers']} layers of {figures['model']}, rows of {len(SHAPES)} unlike shapes; "
        "seconds of processor time, forward and backward, medians of turns that alternate.",
        "",
        "| | plain | compiled | times as fast, turn by turn | compiling, without g++ | versions | "
        "gradient apart |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, case in figures["cases"].items():
        ratios = [one / other for one, other in zip(case["plain"], case["compiled"], strict=True)]
        lines.append(
            f"| {name} | {median(case['plain']):.2f} s | {median(case['compiled']):.2f} s | "
            f"{median(ratios):.2f} ({spread(ratios, 2)}) | {case['compiling']:.0f} s | "
            f"{case['versions']} | {case['apart']:.0e} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    bench = Bench("compiled", __doc__, table)
    bench.option("--repeat", type=int, default=5, help="turns of a case (default: 5)")
    bench.run(measure)
