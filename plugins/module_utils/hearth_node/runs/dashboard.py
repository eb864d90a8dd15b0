"""TensorBoard on a node, for one run at a time, and the curves that it shows."""

from __future__ import annotations

import os

from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.runs.pages import HOST, Page, PageError

PAGE = Page("TensorBoard", "tensorboard", 6006)


def curves(workspace: str, run: str) -> str:
    """Return the folder of a run's TensorBoard event files."""
    return os.path.join(workspace, "results", run, "tensorboard")


def check(workspace: str, run: str, python: str) -> None:
    """Raise `PageError` if `run` has no curves here."""
    if os.path.isdir(curves(workspace, run)):
        return
    if "\nscript:" in text_of(os.path.join(workspace, "results", run, "run.yml")):
        raise PageError(
            f"'{run}' is the run of a script, which keeps its curves where and how it likes"
        )
    raise PageError(
        f"there are no curves of '{run}' here yet ({curves(workspace, run)}): its ranks begin "
        "them with the first step"
    )


def variables(workspace: str, models: str) -> dict[str, str]:
    """Return the environment variables of `command`: none."""
    return {}


def command(workspace: str, run: str, python: str, port: int) -> list[str]:
    """Return the command that shows a run's curves at a port."""
    words = [python, "-m", "tensorboard.main", "--logdir", curves(workspace, run), "--host", HOST]
    return [*words, "--port", str(port), "--load_fast", "false", "--window_title", run]


def facts(workspace: str, run: str, python: str, models: str, served: dict) -> dict:
    """Return the run's unsynced wandb folders, one per launch, and the `wandb` command for them.

    `wandb_asked` is whether the run's settings ask for wandb; by itself it keeps a record offline,
    too.
    """
    results = os.path.join(workspace, "results", run)
    folder = os.path.join(results, "wandb")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    origins = text_of(os.path.join(results, "run.yml")).splitlines()
    return {
        "offline": [
            os.path.join(folder, name) for name in names if name.startswith("offline-run-")
        ],
        "wandb_asked": "  wandb: default" not in origins,
        "wandb": os.path.join(os.path.dirname(python), "wandb"),
    }
