#!/usr/bin/python
"""Ansible module: one node's part in distributing model and data."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_distribute
short_description: One node's part in bringing model and data of a run to all nodes
description:
  - Calls C(python -m hearth.transfer) from the workspace of the node. The action plugin of the same
    name knows the other nodes and fills in O(spec).
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  verb:
    description:
      - V(look) says what the node has; V(mark) marks a folder that all nodes are to share.
      - V(fetch) downloads the model; V(offer) starts to give what is there to other nodes.
      - V(take) starts to take what the node lacks, and to give it on.
    type: str
    choices: [look, mark, fetch, offer, take]
    required: true
  run_file:
    description: Text of the C(run.yml). It lies on the node only meanwhile.
    type: str
    required: true
  node:
    description: Name of this node.
    type: str
    required: true
  workspace:
    description: Workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the node's environment. May start with C(~).
    type: str
    required: true
  models:
    description: Model cache; by default C(models/) in the workspace.
    type: str
  spec:
    description: What the verb has to know.
    type: dict
    required: true
  secret:
    description: What the nodes of this call prove themselves with to each other.
    type: str
  hub_token:
    description: Token for gated models. It reaches the command in its environment only.
    type: str
attributes:
  check_mode:
    support: partial
    details: Only V(look) does anything in check mode.
"""

EXAMPLES = r"""
- name: What each node has already
  hearth_distribute:
    verb: look
    run: "{{ plan_run }}"
    nodes: "{{ plan_inventory.nodes }}"
    workspace: "{{ hearth_workspace }}"
    python: "{{ hearth_python }}"
"""

RETURN = r"""
findings:
  description: What stands in the way, one sentence each; empty if nothing does.
  returned: always
  type: list
  elements: str
facts:
  description: What was found out.
  returned: always
  type: dict
pid:
  description: Process that takes and gives.
  returned: with V(offer) and V(take)
  type: int
"""

import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, environment, hearth, write_private


def main() -> None:
    """Run the module."""
    verbs = ["look", "mark", "fetch", "offer", "take"]
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "choices": verbs, "required": True},
            "run_file": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "models": {"type": "str"},
            "spec": {"type": "dict", "required": True},
            "secret": {"type": "str", "no_log": True},
            "hub_token": {"type": "str", "no_log": True},
        },
        required_if=[("verb", "offer", ["secret"]), ("verb", "take", ["secret"])],
        supports_check_mode=True,
    )
    given = module.params
    workspace = absolute(given["workspace"])
    code = os.path.isdir(os.path.join(workspace, "scripts", "hearth", "transfer"))
    if module.check_mode and (given["verb"] != "look" or not code):
        module.exit_json(changed=False, findings=[], facts={}, skipped=True)
    run_file = os.path.join(module.tmpdir, "run.yml")
    write_private(run_file, given["run_file"])
    spec = os.path.join(module.tmpdir, "transfer.json")
    write_private(spec, json.dumps({**given["spec"], "secret": given["secret"]}))
    models = given["models"] and absolute(given["models"])
    secrets = {"HF_TOKEN": given["hub_token"]} if given["verb"] == "fetch" else {}
    report = hearth(
        module,
        absolute(given["python"]),
        ["hearth.transfer", given["verb"], "--run-file", run_file, "--spec", spec],
        environment(workspace, given["node"], models, secrets),
    )
    module.exit_json(
        changed=bool(report.facts.get("changed")),
        findings=report.findings,
        facts=report.facts,
        pid=report.record.get("pid"),
    )


if __name__ == "__main__":
    main()
