#!/usr/bin/python
"""Ansible module: inspect this node, test its links, take part in an all-reduce across all."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_verify
short_description: One node's part in verifying the cluster
description:
  - Calls C(python -m hearth.verify) from the workspace of the node. The action plugin of the same
    name knows the other nodes and fills in O(spec).
  - What is wrong comes back as RV(findings) and does not fail the task.
options:
  verb:
    description:
      - V(look) says what the node is, and answers the others for a while.
      - V(talk) speaks with every other node; V(all_reduce) takes part in a sum across all.
    type: str
    choices: [look, talk, all_reduce]
    required: true
  workspace:
    description: The workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
  node:
    description: Name of the node.
    type: str
    required: true
  spec:
    description: What the verb has to know.
    type: dict
    required: true
  token:
    description: Secret shared by the supervisors, for V(all_reduce).
    type: str
attributes:
  check_mode:
    support: none
"""

EXAMPLES = r"""
- name: What each node is
  hearth_verify:
    verb: look
    nodes: "{{ plan_inventory.nodes }}"
"""

RETURN = r"""
facts:
  description: What was found out.
  returned: always
  type: dict
findings:
  description: What stands in the way, one sentence each; empty if nothing does.
  returned: always
  type: list
  elements: str
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, environment, hearth, write_private


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": ["look", "talk", "all_reduce"], "required": True},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
            "spec": {"type": "dict", "required": True},
            "token": {"type": "str", "no_log": True},
        },
        required_if=[("verb", "all_reduce", ["token"])],
    )
    given = module.params
    workspace, python = absolute(given["workspace"]), absolute(given["python"])
    if not os.path.isdir(os.path.join(workspace, "scripts", "hearth", "verify")):
        missing = f"{workspace} lacks the training code: provision.yml --tags workspace"
        module.exit_json(changed=False, facts={}, findings=[missing])
    spec = {**given["spec"], "workspace": workspace}
    if given["verb"] == "all_reduce":
        own = {"workspace": workspace, "python": python, "token": given["token"]}
        spec["launch"] = {**spec["launch"], **own}
    path = os.path.join(module.tmpdir, "verify.json")
    write_private(path, json.dumps(spec))
    verb = given["verb"].replace("_", "-")
    variables = environment(workspace, given["node"], None, {})
    report = hearth(module, python, ["hearth.verify", verb, "--spec", path], variables)
    module.exit_json(changed=False, facts=report.facts, findings=report.findings)


if __name__ == "__main__":
    main()
