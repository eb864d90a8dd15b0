#!/usr/bin/python
"""Ansible module: talk to what a run has learned, on a node that has it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_chat
short_description: The command that talks to a run's result on a node, or an endpoint for it
description:
  - The endpoint listens on loopback only, as a process in a session of its own. A node has one at
    most.
  - The action plugin of the same name says how to use either from here.
options:
  state:
    description:
      - V(shown) returns the command to type on the node.
      - V(started) serves O(run), and no other; V(stopped) ends that.
    type: str
    choices: [shown, started, stopped]
    required: true
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the node's environment. May start with C(~).
    type: str
    required: true
  models:
    description: Model cache of the node; empty is C(models/) in the workspace.
    type: str
    default: ""
  run:
    description: Name of the run; wanted but for V(stopped).
    type: str
  port:
    description: Port of loopback; 0 is 8000, or another if that is taken.
    type: int
    default: 0
  variables:
    description: Further environment variables of the endpoint.
    type: dict
    default: {}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, run_under_way
from ansible.module_utils.hearth_node.runs.chat import (
    PAGE,
    check,
    command,
    describe_gone,
    models_at,
    variables,
)
from ansible.module_utils.hearth_node.runs.pages import PageError


def main() -> None:
    """Run the module.

    It returns the `endpoint`: its `run`, `port`, `pid` and the `models` that it answers as; empty
    without one. An endpoint that is gone by itself is told of (`gone`, or `note` when stopped). But
    for `stopped` also the `command` for a terminal, with its `variables`, and the
    run that trains on the node (`busy`), if any.
    """
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["shown", "started", "stopped"], "required": True},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "models": {"type": "str", "default": ""},
            "run": {"type": "str"},
            "port": {"type": "int", "default": 0},
            "variables": {"type": "dict", "default": {}},
        },
        required_if=[("state", "shown", ["run"]), ("state", "started", ["run"])],
        supports_check_mode=True,
    )
    given = module.params
    workspace = absolute(given["workspace"])
    try:
        gone = describe_gone(workspace)
        if given["state"] == "stopped":
            there = PAGE.end(workspace, module.check_mode)
            module.exit_json(changed=bool(there), endpoint={}, note=gone)
        module.exit_json(gone=gone, **_answer(module, workspace))
    except (PageError, OSError) as error:
        module.fail_json(msg=str(error))


def _answer(module: AnsibleModule, workspace: str) -> dict:
    """Check the run, start the endpoint if that is wanted, and return the module's result."""
    given, python = module.params, absolute(module.params["python"])
    models = absolute(given["models"]) if given["models"] else ""
    run, ours = given["run"], variables(workspace, models)
    check(workspace, run, python)
    known = {
        "command": command(workspace, run, python),
        "variables": ours,
        "busy": run_under_way(workspace),
    }
    if given["state"] == "shown":
        return {"changed": False, "endpoint": {}, **known}
    changed, endpoint = PAGE.serve(
        workspace,
        run,
        given["port"],
        lambda port: command(workspace, run, python, port),
        {**{name: str(value) for name, value in given["variables"].items()}, **ours},
        module.check_mode,
    )
    if endpoint:
        endpoint["models"] = models_at(endpoint["port"])
    return {"changed": changed, "endpoint": endpoint, **known}


if __name__ == "__main__":
    main()
