#!/usr/bin/python
"""Ansible module: TensorBoard for a run on the node that has its metrics."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_dashboard
short_description: Start TensorBoard for a run on a node, or end it
description:
  - It listens on loopback only, as a process in a session of its own. A node has one at most.
  - The action plugin of the same name says how to look at it from here.
options:
  state:
    description: V(started) shows O(run), and no other; V(stopped) ends it.
    type: str
    choices: [started, stopped]
    required: true
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the node's environment. May start with C(~).
    type: str
    required: true
  run:
    description: Name of the run; wanted by V(started).
    type: str
  port:
    description: Port of loopback; 0 is TensorBoard's own, 6006, or another if that is taken.
    type: int
    default: 0
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, text_of
from ansible.module_utils.hearth_node.runs.dashboard import (
    PAGE,
    command,
    curves,
    offline_runs,
    wandb_was_asked_for,
)
from ansible.module_utils.hearth_node.runs.pages import PageError


def main() -> None:
    """Run the module.

    It returns the `dashboard`: its `run`, `port` and `pid`; empty without one. `started` also the
    folders that wandb keeps unsent (`offline`), whether a person set it for this run
    (`wandb_asked`), and the `wandb` command of the environment.
    """
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["started", "stopped"], "required": True},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "run": {"type": "str"},
            "port": {"type": "int", "default": 0},
        },
        required_if=[("state", "started", ["run"])],
        supports_check_mode=True,
    )
    given = module.params
    workspace = absolute(given["workspace"])
    try:
        if given["state"] == "stopped":
            there = PAGE.end(workspace, module.check_mode)
            module.exit_json(changed=bool(there), dashboard={})
        module.exit_json(**_started(module, workspace))
    except (PageError, OSError) as error:
        module.fail_json(msg=str(error))


def _started(module: AnsibleModule, workspace: str) -> dict:
    """Start TensorBoard for the run; return the module's result."""
    given, python = module.params, absolute(module.params["python"])
    run = given["run"]
    if not os.path.isdir(curves(workspace, run)):
        if "\nscript:" in text_of(os.path.join(workspace, "results", run, "run.yml")):
            raise PageError(
                f"'{run}' is the run of a script, which keeps its curves where and how it likes"
            )
        raise PageError(
            f"there are no curves of '{run}' here yet ({curves(workspace, run)}): its ranks begin "
            "them with the first step"
        )
    known = {
        "offline": offline_runs(workspace, run),
        "wandb_asked": wandb_was_asked_for(workspace, run),
        "wandb": os.path.join(os.path.dirname(python), "wandb"),
    }

    def command_at(port: int) -> list[str]:
        if not os.access(python, os.X_OK):
            raise PageError(f"there is no Python at {python}; `hearth provision` makes it")
        return command(python, workspace, run, port)

    changed, dashboard = PAGE.serve(
        workspace,
        run,
        given["port"],
        command_at,
        {},
        module.check_mode,
    )
    return {"changed": changed, "dashboard": dashboard, **known}


if __name__ == "__main__":
    main()
