"""TensorBoard on a node, for one run at a time, and the curves that it shows."""

from __future__ import annotations

import os

from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.runs.pages import HOST, Page

PAGE = Page("TensorBoard", "tensorboard", 6006)


def curves(workspace: str, run: str) -> str:
    """Return the folder of a run's TensorBoard event files."""
    return os.path.join(workspace, "results", run, "tensorboard")


def offline_runs(workspace: str, run: str) -> list[str]:
    """Return the folders of a run's unsynced offline wandb data, one per launch."""
    folder = os.path.join(workspace, "results", run, "wandb")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.startswith("offline-run-")]


def wandb_was_asked_for(workspace: str, run: str) -> bool:
    """Return whether a person set `wandb` for a run; the default keeps a record offline, too."""
    lines = text_of(os.path.join(workspace, "results", run, "run.yml")).splitlines()
    return "  wandb: default" not in lines  # among the origins of the settings


def command(python: str, workspace: str, run: str, port: int) -> list[str]:
    """Return the command that shows a run's curves at a port."""
    words = [python, "-m", "tensorboard.main", "--logdir", curves(workspace, run), "--host", HOST]
    return [*words, "--port", str(port), "--load_fast", "false", "--window_title", run]
