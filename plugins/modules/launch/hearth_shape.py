#!/usr/bin/python
"""Ansible module: the sizes of a run's model, before its download."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_shape
short_description: The sizes of a run's model, before it is fetched
description:
  - Calls C(python -m hearth.fit.published), which looks into the cache of the node and otherwise
    asks the Hub for the model's C(config.json), of which nothing is kept.
  - Where neither says it, nothing is known; what stands in the way of a download is said by the
    download.
options:
  run_file:
    description: Text of the C(run.yml). It lies on the node only meanwhile.
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
  hub_token:
    description: Token for gated models. It reaches the command in its environment only.
    type: str
attributes:
  check_mode:
    support: full
    details: In check mode the Hub is not asked, so nothing is known.
"""

EXAMPLES = r"""
- name: The sizes of the model
  hearth_shape:
    run_file: "{{ plan_run.file }}"
    node: "{{ inventory_hostname }}"
    workspace: "{{ hearth_workspace }}"
    python: "{{ hearth_python }}"
"""

RETURN = r"""
shape:
  description: The sizes, named as in C(config.json); empty where nothing is known.
  returned: always
  type: dict
findings:
  description: Why the command did not run; empty if it did.
  returned: always
  type: list
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
            "hub_token": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, findings=[], shape={}, skipped=True)
    workspace = absolute(module.params["workspace"])
    models = module.params["models"] and absolute(module.params["models"])
    path = os.path.join(module.tmpdir, "run.yml")
    write_private(path, module.params["run_file"])
    report = hearth(
        module,
        absolute(module.params["python"]),
        ["hearth.fit.published", "--run-file", path],
        environment(
            workspace, module.params["node"], models, {"HF_TOKEN": module.params["hub_token"]}
        ),
    )
    module.exit_json(changed=False, findings=report.findings, shape=report.facts.get("shape") or {})


if __name__ == "__main__":
    main()
