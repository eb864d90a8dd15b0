"""The files that Hearth writes below the folders of a workspace; others there are a person's."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ansible.module_utils.hearth.base.files import read_object
from ansible.module_utils.hearth.base.places import QUEUE, RUN_NAME

FOLDERS = ("results", "checkpoints", "logs", "config", QUEUE)
"""Folders of a workspace in which each file is told by its name and by the runs that there are."""

OF_RUNS = ("results", "checkpoints")
"""Those that have a folder for each run."""

# A file that is written has another name until it is whole, and so has a folder.
_FILE = r"\.?({})(\.new|\.\d+)?"
_FOLDER = r"\.?({})(\.unfinished|\.old)?"
_OF_A_RUN = "|".join(
    (
        _FILE.format(r"run\.yml|metrics\.jsonl|supervisor\.json|votes\.json|job\.sbatch|stop"),
        _FOLDER.format("adapter|model|best"),
        r"job\.log|control|export|files|tensorboard|wandb",
    )
)
_PATHS = (
    f"results/RUN/({_OF_A_RUN})",
    r"checkpoints/RUN/((\.writing-)?step-\d+|\.reading-.+)",
    r"logs/(RUN\.log|\.RUN\.torchrun|transfer\.log|\.(chat|tensorboard)\.log)",
    r"config/supervisor\.lock",
    "config/" + _FILE.format(r"(RUN|transfer|chat|tensorboard)\.json|RUN\.secrets"),
    f"{QUEUE}/" + _FILE.format(r"RUN\.(json|lock)"),
)


def runs_in(workspace: str) -> set[str]:
    """Return the names of the runs of which this workspace has anything that Hearth wrote."""
    marks = {
        "results": lambda path: _holds(path, ("run.yml", "supervisor.json")),
        "checkpoints": lambda path: any(name.startswith("step-") for name in _names_in(path)),
        "config": lambda path: "run" in (read_object(path) or {}),
        QUEUE: lambda path: "position" in (read_object(path) or {}),
    }
    return {
        run
        for folder, is_marked in marks.items()
        for name in _names_in(os.path.join(workspace, folder))
        if RUN_NAME.fullmatch(run := name.removesuffix(".json"))
        and is_marked(os.path.join(workspace, folder, name))
    }


def written_by_hearth(runs: Iterable[str]) -> re.Pattern[str]:
    """Return the pattern of the paths in a workspace that Hearth writes for these runs."""
    run = "|".join(map(re.escape, sorted(runs))) or "(?!)"
    return re.compile("|".join(_PATHS).replace("RUN", f"({run})"))


def _holds(folder: str, names: Iterable[str]) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _names_in(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) and not os.path.islink(folder) else []
