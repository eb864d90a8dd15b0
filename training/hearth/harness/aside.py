"""Starts the process that imports lm-eval, and installs its packages the first time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.extras import ensure_extra
from hearth.base.places import OF_A_LAUNCH, python_path
from hearth.harness.scores import Score, from_records

_CODE = Path(__file__).resolve().parents[2]

_WHAT = "eval (lm-eval)"


def check_tasks(tasks: Sequence[str], say: Callable[[str], None]) -> None:
    """Load all `tasks`, so that their examples are on this node.

    Raises `ConfigError` if one is unknown or does not load, and `SupplyError` if lm-eval cannot be
    installed.
    """
    _call("check", {"tasks": list(tasks)}, say)


def evaluate_run(
    folder: Path, tasks: Sequence[str], limit: int | None, best: bool, say: Callable[[str], None]
) -> list[Score]:
    """Return the scores of the run in `folder`, see `evaluate.compare`.

    Raises `HearthError` with everything that is in the way.
    """
    spec = {"tasks": list(tasks), "folder": str(folder), "limit": limit, "best": best}
    return from_records(_call("run", spec, say)["scores"])


def _call(verb: str, spec: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Return the facts that the process answers; what else it says goes to standard error."""
    spec |= {"packages": str(ensure_extra("eval", _WHAT, say))}
    launch = {name: text for name, text in os.environ.items() if name not in OF_A_LAUNCH}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(spec, file)
        file.flush()
        done = subprocess.run(
            [sys.executable, "-m", "hearth.harness", verb, "--spec", file.name],
            env=launch | {"PYTHONPATH": python_path(_CODE, launch)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise HearthError(
            f"{_WHAT}: it ended with status {done.returncode} (above is why); the weights are as "
            "they were"
        ) from None
    if answer["findings"]:
        raise HearthError(*answer["findings"])
    return answer["facts"]
