"""The command that repeats a run, from its explicit settings and launch options."""

from __future__ import annotations

import json
import shlex
from typing import Any

from hearth.config import Run, shown
from hearth_controller.launch.typed import OF_ROLES

_OF_THIS_RUN = ("run", "resume")


def explicit_settings(run: Run) -> dict[str, Any]:
    """Return the explicit settings of a run: without those that others determine."""
    return {
        name: value
        for name, value in run.settings.model_dump().items()
        if name not in _OF_THIS_RUN
        and run.origins.get(name, "default") not in ("default", "auto")
        and not run.origins[name].startswith(("preset ", "onto ", "objective "))
    }


def repeat_command(run: Run, hearth: str | None) -> str:
    """Return the command for a run like this one, under a new name.

    `hearth` is the command for the inventory it ran on, None for a run that was started by hand.
    """
    settings = explicit_settings(run)
    if not hearth:
        options = (_option(*each) for each in settings.items())
        return " ".join(["python training/train_distributed.py", *options])
    words = settings | run.launch
    model = [shlex.quote(_typed(words.pop("model")))] if "model" in words else []
    options = (
        _variable(*each) if each[0].startswith(OF_ROLES) else _option(*each)
        for each in words.items()
    )
    return " ".join([hearth, "train", *model, *options])


def _variable(name: str, value: Any) -> str:
    """Return an option of the inventory as a variable for Ansible."""
    return f"-e {shlex.quote(json.dumps({name: value}))}"


def _option(name: str, value: Any) -> str:
    """Return a setting as a flag of the command, or of the script."""
    option = name.replace("_", "-")
    return f"--{option} {shlex.quote(_typed(value))}"


def _typed(value: Any) -> str:
    """Return a setting's value as a person would type it."""
    return "none" if value is None else shown(value)
