"""Measured and estimated memory of a rank."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.ranks import environment

from hearth.config import resolve
from hearth.config.shape import shape_in
from hearth.fit.estimate import case_of, estimate
from tests.bench.memory.sizes import make_data, make_model

ROOT = Path(__file__).resolve().parents[3]


_MODULE = "tests.bench.memory.rank"


def taken(
    folder: Path, size: str, rows: int, length: int, checkpointing: bool, ranks: int = 1
) -> dict[str, Any]:
    """Return the bytes `before` the run, at its `peak`, and `estimated` in between, with the case.

    Several ranks have a part each of what does not learn (`parallel: fsdp`); the figures are those
    of the one that takes most. `folder` keeps models, data and runs.
    """
    model, data = folder / size, folder / f"{length}.jsonl"
    if not model.exists():
        make_model(model, size)
    make_data(data, 2 * rows * ranks, length)
    settings = {
        "model": str(model),
        "dataset": str(data),
        "sequence_length": length,
        "global_batch": rows * ranks,
        "micro_batch": rows,
        "split": "equal",
        "max_steps": 2,
        "held_out": 0,
        "wandb": "off",
        "parallel": "fsdp" if ranks > 1 else "ddp",
        "run": f"{size}-{rows}-{length}-{checkpointing}-{ranks}".lower(),
    }
    switches = {"evaluate": False, "gradient_checkpointing": checkpointing}
    # torchrun takes --run for an option of its own.
    options = {"run_name" if name == "run" else name: value for name, value in settings.items()}
    typed = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    typed += [f"--{'' if on else 'no-'}{name.replace('_', '-')}" for name, on in switches.items()]
    own = environment(folder)
    places = [str(ROOT), str(ROOT / "tests"), own["PYTHONPATH"]]
    several = ("torch.distributed.run", "--standalone", "--local-addr=127.0.0.1")
    launcher = (*several, f"--nproc-per-node={ranks}", "-m") if ranks > 1 else ()
    done = subprocess.run(
        [sys.executable, "-m", *launcher, _MODULE, *typed],
        cwd=folder,
        env=own | {"PYTHONPATH": ":".join(places), "OMP_NUM_THREADS": str(max(1, 2 // ranks))},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shape = shape_in(model)
    resolved = resolve(settings | switches).settings
    case = case_of(resolved, gpu=False, gpus=False, all_gpus=False, ranks=ranks)
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
