"""The trainer's script with a tiny model that takes as long as a large one would.

Stands in for train_distributed.py, in the same folder. These variables, all in seconds, say how
long it sleeps: STAND_IN_LOAD in each load of the model, STAND_IN_ROW for each row that it computes,
STAND_IN_DISK before the files of a checkpoint are synced, STAND_IN_EVALUATION before each
micro-batch of a held-out evaluation. In the working directory there is a file `loaded` after a
load, and `evaluates` while it sleeps in an evaluation.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def slowed(act: Callable[..., Any], seconds: Callable[..., float]) -> Callable[..., Any]:
    """Return `act`, preceded by a sleep whose length depends on its arguments."""

    def slowly(*given: Any, **named: Any) -> Any:
        time.sleep(seconds(*given, **named))
        return act(*given, **named)

    return slowly


def noted(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return `load`, which writes the file."""

    def loading(*given: Any, **named: Any) -> Any:
        loaded = load(*given, **named)
        Path("loaded").touch()
        return loaded

    return loading


def main() -> None:
    from hearth.base.entry import loading

    for name in ("loaded", "evaluates"):
        Path(name).unlink(missing_ok=True)
    with loading():
        from hearth.model import transformers_backend
        from hearth.ranks.control_protocol import EVALUATION
        from hearth.record import checkpoint
        from hearth.trainer.compute import Compute
        from hearth.trainer.work import Work

    load, row, disk, evaluation = (
        float(os.environ.get(f"STAND_IN_{name}", "0"))
        for name in ("LOAD", "ROW", "DISK", "EVALUATION")
    )
    begin_rows = Work.begin_rows

    def begin(work: Work, what: str, *given: Any) -> None:
        begin_rows(work, what, *given)
        if what == EVALUATION[0]:
            Path("evaluates").touch()
            time.sleep(evaluation)
            Path("evaluates").unlink(missing_ok=True)

    Work.begin_rows = begin
    transformers_backend.load = slowed(noted(transformers_backend.load), lambda *_, **__: load)
    Compute.gradients = slowed(Compute.gradients, lambda _, own, *__, **___: row * len(own))
    checkpoint.sync_below = slowed(checkpoint.sync_below, lambda *_: disk)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_distributed.py")
    sys.argv[0] = script
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
