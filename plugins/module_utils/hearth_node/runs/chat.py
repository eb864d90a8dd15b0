"""Talking to a run's result on a node: the command to type there, and the endpoint."""

from __future__ import annotations

import json
import os

from ansible.module_utils.hearth_node.base import run_under_way
from ansible.module_utils.hearth_node.runs.pages import Page, PageError, fetch

# A large model takes minutes to load from a slow disk.
PAGE = Page("the endpoint", "chat", 8000, "/health", seconds=900.0)

_RESULTS = ("adapter", "model")


def check(workspace: str, run: str, python: str) -> None:
    """Raise `PageError` if `run` cannot answer on this node yet."""
    if not os.access(python, os.X_OK):
        raise PageError(f"there is no Python at {python}; `hearth provision` makes it")
    if not os.path.isfile(_program(workspace)):
        raise PageError(
            f"the training code in {workspace} has no chat.py: it is older than this computer's, "
            "which `hearth provision --tags workspace` brings, or the next run"
        )
    kept = os.path.join(workspace, "checkpoints", run)
    saved = os.path.isdir(kept) and any(name.startswith("step-") for name in os.listdir(kept))
    results = os.path.join(workspace, "results", run)
    if not saved and not any(os.path.isdir(os.path.join(results, name)) for name in _RESULTS):
        raise PageError(f"'{run}' has learned nothing here yet: no adapter, no checkpoint")


def variables(workspace: str, models: str) -> dict[str, str]:
    """Return the environment variables of `command`, with the model cache `models` if given."""
    given = {"HEARTH_WORKSPACE": workspace}
    return {**given, "HEARTH_MODELS": models} if models else given


def command(workspace: str, run: str, python: str, port: int | None = None) -> list[str]:
    """Return the command that talks to `run`; with a `port` it serves the endpoint there."""
    served = ["--serve", "--port", str(port)] if port is not None else []
    return [python, _program(workspace), run, *served]


def facts(workspace: str, run: str, python: str, models: str, served: dict) -> dict:
    """Return the command for a terminal, its variables, and the run that trains on the node.

    A server in `served` gets the names of the `models` that it answers as.
    """
    if served:
        found = json.loads(fetch(served["port"], "/v1/models") or "{}").get("data", [])
        served["models"] = [model["id"] for model in found]
    return {
        "command": command(workspace, run, python),
        "variables": variables(workspace, models),
        "busy": run_under_way(workspace),
    }


def _program(workspace: str) -> str:
    return os.path.join(workspace, "scripts", "chat.py")
