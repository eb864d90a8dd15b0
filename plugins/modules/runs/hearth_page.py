#!/usr/bin/python
"""Ansible module: a web page or an endpoint of a run on a node: TensorBoard, or its chat."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_page
short_description: Serve a run on a node by TensorBoard or as an endpoint, or end that
description:
  - The server listens on loopback only, as a process in a session of its own. A node has one of a
    kind at most.
  - The action plugin of the same name says how to use it from here.
options:
  page:
    description: V(chat) answers OpenAI's API; V(dashboard) is TensorBoard.
    type: str
    choices: [chat, dashboard]
    required: true
  state:
    description:
      - V(shown) returns the command that talks to the run on the node.
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
    description: Name of the run; required unless O(state=stopped).
    type: str
  port:
    description: Port of loopback; 0 is the usual one, or another if that is taken.
    type: int
    default: 0
  variables:
    description: Further environment variables of the server.
    type: dict
    default: {}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.runs import chat, dashboard
from ansible.module_utils.hearth_node.runs.pages import PageError

_KINDS = {"chat": chat, "dashboard": dashboard}


def main() -> None:
    """Run the module.

    It returns the `run`, `port` and `pid` of the server as `served`, empty without one, and the
    facts of its kind. `gone` explains a server that ended by itself (`note` when stopped).
    """
    module = AnsibleModule(
        argument_spec={
            "page": {"type": "str", "choices": [*_KINDS], "required": True},
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
    given, page = module.params, _KINDS[module.params["page"]].PAGE
    workspace = absolute(given["workspace"])
    try:
        gone = page.describe_gone(workspace)
        if given["state"] == "stopped":
            there = page.end(workspace, module.check_mode)
            module.exit_json(changed=bool(there), served={}, note=gone)
        module.exit_json(gone=gone, **_served(module, workspace))
    except (PageError, OSError) as error:
        module.fail_json(msg=str(error))


def _served(module: AnsibleModule, workspace: str) -> dict:
    """Check the run, start its server if that is wanted, and return the module's result."""
    given, kind = module.params, _KINDS[module.params["page"]]
    run, python = given["run"], absolute(given["python"])
    models = absolute(given["models"]) if given["models"] else ""
    kind.check(workspace, run, python)
    changed, record = False, {}
    if given["state"] == "started":
        further = {name: str(value) for name, value in given["variables"].items()}
        changed, record = kind.PAGE.serve(
            workspace,
            run,
            given["port"],
            lambda port: kind.command(workspace, run, python, port),
            {**further, **kind.variables(workspace, models)},
            module.check_mode,
        )
    facts = kind.facts(workspace, run, python, models, record)
    return {"changed": changed, "served": record, **facts}


if __name__ == "__main__":
    main()
