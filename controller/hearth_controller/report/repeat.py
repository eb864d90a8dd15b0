"""The command that repeats a run, from the settings and launch words that somebody gave it."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hearth.config import Run, shown

_OF_THIS_RUN = ("run", "resume")


def given(run: Run) -> dict[str, Any]:
    """Return the settings of a run that neither the defaults nor its preset decided."""
    return {
        name: value
        for name, value in run.settings.model_dump().items()
        if name not in _OF_THIS_RUN
        and run.origins.get(name, "default") != "default"
        and not run.origins[name].startswith("preset ")
    }


def repeat_command(run: Run, playbook: str | None) -> str:
    """Return what to type for a run like this one, under a name of its own.

    `playbook` is how to call `ansible-playbook` for the inventory it ran on, None for a run that
    was started by hand.
    """
    settings = given(run)
    if playbook:
        words = settings | run.launch
        return " ".join([playbook, "train.yml", *(variable(*each) for each in words.items())])
    return " ".join(
        ["python training/train_distributed.py", *(_option(*each) for each in settings.items())]
    )


def variable(name: str, value: Any) -> str:
    """Return a word as a variable of Ansible, which takes NAME=VALUE apart at spaces."""
    if isinstance(value, list | dict):
        return f"-e {shlex.quote(json.dumps({name: value}))}"
    typed = _typed(value)
    if typed and shlex.quote(typed) == typed:
        return f"-e {name}={typed}"
    return f"-e {shlex.quote(json.dumps({name: typed}))}"


def _option(name: str, value: Any) -> str:
    """Return a setting as an option of the script."""
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {shlex.quote(_typed(value))}"


def _typed(value: Any) -> str:
    """Return a setting's value as a person would type it."""
    return "none" if value is None else shown(value)
