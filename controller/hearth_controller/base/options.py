"""Helpers of plugins: options read from the documentation, and modules run by a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """Return the content of YAML text, by the fast loader where there is one."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def argument_spec(documentation: str) -> dict[str, dict[str, Any]]:
    """Return the argument spec of the options that a plugin's `DOCUMENTATION` describes."""
    options = read_yaml(documentation)["options"]
    return {
        name: {key: value for key, value in option.items() if key != "description"}
        for name, option in options.items()
    }


def run_module(
    action: Any, name: str, arguments: Mapping[str, Any], task_vars: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a module as its own task would, by its action plugin if it has one; return its result.

    `action` is the action plugin of the current task.
    """
    plugins = action._shared_loader_obj.action_loader
    if not plugins.find_plugin(name):
        return action._execute_module(name, dict(arguments), task_vars=task_vars)
    task = action._task.copy()
    task.action, task.args = name, dict(arguments)
    plugin = plugins.get(
        name,
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
    return plugin.run(task_vars=task_vars)
