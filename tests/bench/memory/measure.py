"""What a rank takes, measured and estimated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.ranks import environment

from hearth.config import resolve
from hearth.fit.memory import case_of, estimate
from hearth.model.shape import shape_in
from tests.bench.memory.sizes import make_data, make_model

ROOT = Path(__file__).resolve().parents[3]


def taken(folder: Path, size: str, rows: int, length: int, checkpointing: bool) -> dict[str, Any]:
    """Return the bytes `before` the run, at its `peak`, and `estimated` in between, with the case.

    `folder` keeps models, data and runs.
    """
    model, data = folder / size, folder / f"{length}.jsonl"
    if not model.exists():
        make_model(model, size)
    make_data(data, 2 * rows, length)
    settings = {
        "model": str(model),
        "dataset": str(data),
        "sequence_length": length,
        "global_batch": rows,
        "micro_batch": rows,
        "split": "equal",
        "max_steps": 2,
        "held_out": 0,
        "wandb": "off",
        "run": f"{size}-{rows}-{length}-{checkpointing}".lower(),
    }
    switches = {"evaluate": False, "gradient_checkpointing": checkpointing}
    typed = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    typed += [f"--{'' if on else 'no-'}{name.replace('_', '-')}" for name, on in switches.items()]
    own = environment(folder)
    places = [str(ROOT), str(ROOT / "tests"), own["PYTHONPATH"]]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.memory.rank", *typed],
        cwd=folder,
        env=own | {"PYTHONPATH": ":".join(places), "OMP_NUM_THREADS": "2"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shape = shape_in(model)
    resolved = resolve(settings | switches).settings
    case = case_of(resolved, gpu=False, gpus=False, all_gpus=False, ranks=1)
    need = estimate(shape, case)
    return {
        "size": size,
        "parameters": shape.parameters,
        "rows": rows,
        "length": length,
        "checkpointing": checkpointing,
        "estimated": need.total - need.imports,
        **json.loads(done.stdout.splitlines()[-1]),
    }
