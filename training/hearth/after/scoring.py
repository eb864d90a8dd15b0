"""Starts the process that imports lm-eval, and installs its packages the first time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from huggingface_hub.constants import HF_HOME, HF_HUB_CACHE

from hearth.base.errors import ConfigError, HearthError, SupplyError
from hearth.base.extras import ensure_extra, extra_folder
from hearth.base.hub import PROBE_SECONDS, hub_api
from hearth.base.places import OF_A_LAUNCH, python_path
from hearth.base.text import listed
from hearth.config.settings import is_file
from hearth.record.events import Score

_CODE = Path(__file__).resolve().parents[2]

_WHAT = "eval (lm-eval)"


def check_tasks(tasks: Sequence[str], say: Callable[[str], None]) -> None:
    """Load all `tasks`, so that their examples are on this node.

    Raises `ConfigError` if one is unknown or does not load, and `SupplyError` if lm-eval cannot be
    installed, or if the Hub has to be asked and does not answer.
    """
    findings = [
        f"eval: there is no file {task} on this node; bring it here, or give a task by its name"
        for task in tasks
        if is_file(task) and not Path(task).is_file()
    ]
    if findings:
        raise ConfigError(*findings)
    named = [task for task in tasks if not is_file(task)]
    if named and not (_answers() or (extra_folder("eval").is_dir() and _any_examples())):
        raise SupplyError(
            f"eval: the Hub, which has the examples of {listed(named)}, does not answer from this "
            "node; connect it, or leave the tasks out"
        )
    _call("tasks", {"tasks": list(tasks)}, say)


def evaluate_run(
    folder: Path, tasks: Sequence[str], limit: int | None, best: bool, say: Callable[[str], None]
) -> list[Score]:
    """Return the scores of the run in `folder`, see `evaluate.compare`.

    Raises `HearthError` with everything that is in the way.
    """
    spec = {"tasks": list(tasks), "folder": str(folder), "limit": limit, "best": best}
    return [Score(**each) for each in _call("scores", spec, say)["scores"]]


def _call(verb: str, spec: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Return the facts that the process answers; what else it says goes to standard error."""
    spec |= {"packages": str(ensure_extra("eval", _WHAT, say))}
    launch = {name: text for name, text in os.environ.items() if name not in OF_A_LAUNCH}
    if not _answers():  # else its libraries try again for minutes
        launch["HF_HUB_OFFLINE"] = "1"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(spec, file)
        file.flush()
        done = subprocess.run(
            [sys.executable, "-m", "hearth.after", verb, "--spec", file.name],
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


@cache
def _answers() -> bool:
    """Return whether the Hub answers from here."""
    if os.environ.get("HF_HUB_OFFLINE"):
        return False
    try:
        httpx.head(hub_api().endpoint, timeout=PROBE_SECONDS)
    except httpx.TransportError:
        return False
    return True


def _any_examples() -> bool:
    """Return whether the caches of the Hub's libraries have any data set."""
    places = (HF_HUB_CACHE, "datasets--*"), (f"{HF_HOME}/datasets", "*")
    return any(any(Path(folder).glob(pattern)) for folder, pattern in places)
