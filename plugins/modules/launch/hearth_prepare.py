#!/usr/bin/python
"""Ansible module: prepare a run's model and data on one node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_prepare
short_description: Get the model and the data of a run ready on this node
description:
  - Calls C(python -m hearth.prepare), which fetches the model into the cache of the node,
    tokenises the data once and looks whether this node can train as asked.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  run_file:
    description: Text of the C(run.yml) to prepare for. It lies on the node only meanwhile.
    type: str
    required: true
  node:
    description: Name of this node.
    type: str
    required: true
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  python:
    description: Python of the node's environment.
    type: str
    required: true
  models:
    description: Model cache; by default C(models/) in the workspace.
    type: str
  nproc:
    description: Processes wanted on this node; 0 is one for each NVIDIA GPU, and at least one.
    type: int
    default: 0
  fetch:
    description: Whether to fetch the model and read the data; else the node is only looked at.
    type: bool
    default: true
  hub_token:
    description: Token for gated models. It reaches the command in its environment only.
    type: str
attributes:
  check_mode:
    support: full
    details: In check mode nothing is fetched, so nothing is found either.
"""

EXAMPLES = r"""
- name: Model and data
  hearth_prepare:
    run_file: "{{ launch_run.file }}"
    node: "{{ inventory_hostname }}"
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
  description: Versions, rows, fingerprints, number of GPUs.
  returned: always
  type: dict
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, environment, hearth, write_private


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "run_file": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
            "workspace": {"type": "str", "required": True},
            "python": {"type": "str", "required": True},
            "models": {"type": "str"},
            "nproc": {"type": "int", "default": 0},
            "fetch": {"type": "bool", "default": True},
            "hub_token": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, findings=[], facts={}, skipped=True)
    workspace = absolute(module.params["workspace"])
    models = module.params["models"] and absolute(module.params["models"])
    path = os.path.join(module.tmpdir, "run.yml")
    write_private(path, module.params["run_file"])
    variables = environment(
        workspace, module.params["node"], models, {"HF_TOKEN": module.params["hub_token"]}
    )
    report = hearth(
        module,
        absolute(module.params["python"]),
        ["hearth.prepare", "--run-file", path, *([] if module.params["fetch"] else ["--check"])],
        variables,
    )
    nproc = module.params["nproc"] or max(1, report.facts.get("gpus", 0))
    module.exit_json(
        changed=bool(report.facts.get("changed")),
        findings=report.findings,
        facts=report.facts | {"nproc": nproc},
    )


if __name__ == "__main__":
    main()
