"""Memory of a rank, measured in a process of its own and estimated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from hearth.config import resolve
from hearth.config.shape import shape_in
from hearth.fit.estimate import case_of, estimate
from support.llama import make_full_texts
from support.ranks import arguments_of, environment
from support.tiny_model import make_model

_SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZES = {
    "small": (512, 1408, 8, 8, 16_384),
    "middle": (768, 2048, 16, 12, 32_000),
    "large": (1280, 3584, 20, 20, 32_000),
}
"""Sizes of a Llama: as its config names them, and its vocabulary."""

WITHIN = 0.15
"""The estimate's largest relative error."""


def off(run: dict[str, Any]) -> float:
    """Return the estimate's relative error; negative where it is below the measurement."""
    return run["estimated"] / (run["peak"] - run["before"]) - 1


def taken(
    folder: Path, size: str, rows: int, length: int, checkpointing: bool, ranks: int = 1
) -> dict[str, Any]:
    """Return the bytes `before` the run, at its `peak`, and `estimated` in between, with the case.

    Several ranks have a part each of what does not learn (`parallel: fsdp`); the figures are those
    of the one that takes most. `folder` keeps models, data and runs.
    """
    model = folder / size
    if not model.exists():
        make_sized(model, size)
    settings = {
        "model": str(model),
        "dataset": str(make_full_texts(folder / f"{length}.jsonl", 2 * rows * ranks, length)),
        "sequence_length": length,
        "global_batch": rows * ranks,
        "micro_batch": rows,
        "split": "equal",
        "max_steps": 2,
        "held_out": 0,
        "wandb": "off",
        "parallel": "fsdp" if ranks > 1 else "ddp",
        "eval_held_out": False,
        "gradient_checkpointing": checkpointing,
    }
    run = f"{size}-{rows}-{length}-{checkpointing}-{ranks}".lower()
    several = ("torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
    launcher = ("-m", *several, f"--nproc-per-node={ranks}") if ranks > 1 else ()
    typed = (*arguments_of(settings), "--run-name", run)
    done = subprocess.run(
        [sys.executable, *launcher, str(Path(__file__).with_name("weighed_rank.py")), *typed],
        cwd=folder,
        env=environment(folder) | {"OMP_NUM_THREADS": str(max(1, 2 // ranks))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shape = shape_in(model)
    case = case_of(resolve(settings).settings, gpu=False, gpus=False, all_gpus=False, ranks=ranks)
    need = estimate(shape, case)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"before"')]
    return {
        "size": size,
        "parameters": shape.parameters,
        "rows": rows,
        "length": length,
        "checkpointing": checkpointing,
        "estimated": need.total - need.imports,
        "ranks": ranks,
        **max(said, key=lambda each: each["peak"] - each["before"]),
    }


def make_sized(folder: Path, size: str) -> Path:
    """Write a Llama of this size with a token a byte to `folder`, and return it."""
    *sizes, vocabulary = SIZES[size]
    return make_model(
        folder,
        dtype=torch.bfloat16,
        **dict(zip(_SHAPE, sizes, strict=True)),
        num_key_value_heads=4,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
