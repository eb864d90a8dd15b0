"""The command that repeats a run, from its explicit settings and launch options."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hearth.config import Run, shown
from hearth_controller.inventory.renamed import GONE, RENAMED

_OF_THIS_RUN = ("run", "resume")


def explicit_settings(run: Run) -> dict[str, Any]:
    """Return the explicit settings of a run: no defaults, nor from its preset or resolved."""
    return {
        name: value
        for name, value in run.settings.model_dump().items()
        if name not in _OF_THIS_RUN
        and run.origins.get(name, "default") not in ("default", "auto")
        and not run.origins[name].startswith("preset ")
    }


def repeat_command(run: Run, playbook: str | None) -> str:
    """Return the command for a run like this one, under a new name.

    `playbook` is the `ansible-playbook` command for the inventory it ran on, None for a run that
    was started by hand.
    """
    settings = explicit_settings(run)
    if playbook:
        launch = {name: value for name, value in run.launch.items() if name not in GONE}
        words = settings | {RENAMED.get(name, name): value for name, value in launch.items()}
        return " ".join([playbook, "train.yml", *(variable(*each) for each in words.items())])
    return " ".join(
        ["python training/train_distributed.py", *(_option(*each) for each in settings.items())]
    )


def variable(name: str, value: Any) -> str:
    """Return an Ansible extra variable, quoted because Ansible splits NAME=VALUE at spaces."""
    if isinstance(value, list | dict):
        return f"-e {shlex.quote(json.dumps({name: value}))}"
    typed = _typed(value)
    if typed and shlex.quote(typed) == typed:
        return f"-e {name}={typed}"
    return f"-e {shlex.quote(json.dumps({name: typed}))}"


def _option(name: str, value: Any) -> str:
    """Return a setting as a command-line option of the script."""
    option = name.replace("_", "-")
    return f"--{option} {shlex.quote(_typed(value))}"


def _typed(value: Any) -> str:
    """Return a setting's value as a person would type it."""
    return "none" if value is None else shown(value)
