"""Measured and estimated memory of a rank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.llama import make_full_texts
from support.ranks import arguments_of, environment

from hearth.config import resolve
from hearth.config.shape import shape_in
from hearth.fit.case import case_of
from hearth.fit.estimate import estimate
from tests.bench.lab import ROOT
from tests.bench.memory.sizes import make_sized

_MODULE = "tests.bench.memory.rank"


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
    own = environment(folder)
    places = {"PYTHONPATH": f"{ROOT}:{own['PYTHONPATH']}"}
    several = ("torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
    launcher = (*several, f"--nproc-per-node={ranks}", "-m") if ranks > 1 else ()
    typed = (*arguments_of(settings), "--run-name", run)
    done = subprocess.run(
        [sys.executable, "-m", *launcher, _MODULE, *typed],
        cwd=folder,
        env=own | places | {"OMP_NUM_THREADS": str(max(1, 2 // ranks))},
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
