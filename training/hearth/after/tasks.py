"""Tasks of lm-eval by name or by file, checked and loaded before anything is evaluated.

It needs the extra `eval`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from hearth.base.errors import ConfigError
from hearth.base.text import brief, listed
from hearth.config.settings import is_file

_NEAREST = 3


def load_tasks(entries: Sequence[str]) -> list[Any]:
    """Return lm-eval's tasks, with their examples; those of the Hub are then in its cache.

    Raises `ConfigError` with everything that is wrong with `entries`.
    """
    from lm_eval.tasks import TaskManager

    names = [entry for entry in entries if not is_file(entry)]
    manager = TaskManager(include_defaults=bool(names))  # to index all takes ten seconds
    known = manager.all_tasks
    findings = [_unknown(name, known) for name in names if name not in known]
    if findings:
        raise ConfigError(*findings)
    loaded: dict[str, Any] = {}
    for entry in entries:
        for task in _load(manager, entry):
            name = getattr(task, "task_name", None) or task.name
            if name in loaded:
                findings.append(f"eval: {entry}: the task {name} is given twice; leave one out")
            if getattr(task, "UNSAFE_CODE", False):
                findings.append(
                    f"eval: {entry} runs code that the model writes, which Hearth does not do on a "
                    "node; leave it out"
                )
            loaded[name] = task
    if findings:
        raise ConfigError(*findings)
    return list(loaded.values())


def _load(manager: Any, entry: str) -> list[Any]:
    """Return the tasks and groups of one entry. Raises `ConfigError` if they do not load."""
    from lm_eval.tasks._yaml_loader import load_yaml

    try:
        spec = load_yaml(entry, resolve_func=True) if is_file(entry) else entry
        found = manager.load([spec])
    except Exception as error:  # each task is a program of its own
        raise ConfigError(
            f"eval: {entry} cannot be loaded on this node: {brief(error)}; check the node's "
            "connection to the Hub, or the file, or leave the task out"
        ) from error
    # A group stands for its tasks.
    inside = {name for names in found["group_map"].values() for name in names}
    named = {**found["tasks"], **found["groups"]}
    return [item for name, item in named.items() if name not in inside]


def _unknown(name: str, known: Sequence[str]) -> str:
    """Return the finding for a task that lm-eval does not have."""
    near = difflib.get_close_matches(name, known, n=_NEAREST, cutoff=0.6)
    hint = f"; near it are {listed(near)}" if near else ""
    return (
        f"eval: lm-eval has no task '{name}'{hint}; it lists them at "
        "https://github.com/EleutherAI/lm-evaluation-harness/tree/main/lm_eval/tasks, and a task "
        "of your own is a file ending in .yaml"
    )
