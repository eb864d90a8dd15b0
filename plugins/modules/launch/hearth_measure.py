#!/usr/bin/python
"""Ansible module: measure the speed of each rank on one node with a run's rows."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_measure
short_description: Measure how fast this node computes the rows of a run, once
description:
  - Calls C(python -m hearth.measure node). What was measured is kept in the workspace, so that the
    next run with the same model and data need not wait for it.
  - Leaves behind, for a minute, what answers the other nodes when they measure the links.
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  run_file:
    description: Text of the C(run.yml) to measure for. It lies on the node only meanwhile.
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
    description: Ranks of this node.
    type: int
    required: true
  threads:
    description: CPU threads of a rank; 0 leaves it to torch.
    type: int
    default: 0
  address:
    description: Cluster address of this node.
    type: str
    required: true
  allowed:
    description: Addresses of the nodes that may ask.
    type: list
    elements: str
    required: true
attributes:
  check_mode:
    support: full
    details: In check mode nothing is measured.
"""

EXAMPLES = r"""
- name: How fast each node computes
  hearth_measure:
    run_file: "{{ plan_run.file }}"
    node: "{{ inventory_hostname }}"
    workspace: "{{ hearth_workspace }}"
    python: "{{ hearth_python }}"
    nproc: 1
    address: "{{ cluster_address }}"
    allowed: ["198.51.100.11", "198.51.100.12"]
"""

RETURN = r"""
findings:
  description: What stands in the way, one sentence each; empty if nothing does.
  returned: always
  type: list
  elements: str
facts:
  description: C(ranks), what was measured of each, and the C(port) of what answers.
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
            "nproc": {"type": "int", "required": True},
            "threads": {"type": "int", "default": 0},
            "address": {"type": "str", "required": True},
            "allowed": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=False, findings=[], facts={}, skipped=True)
    path = os.path.join(module.tmpdir, "run.yml")
    write_private(path, given["run_file"])
    threads = {"OMP_NUM_THREADS": str(given["threads"])} if given["threads"] else {}
    models = given["models"] and absolute(given["models"])
    verb = ["hearth.measure", "node", "--run-file", path, "--ranks", str(given["nproc"])]
    report = hearth(
        module,
        absolute(given["python"]),
        [*verb, "--address", given["address"], "--allowed", *given["allowed"]],
        environment(absolute(given["workspace"]), given["node"], models, {}) | threads,
    )
    module.exit_json(changed=False, findings=report.findings, facts=report.facts)


if __name__ == "__main__":
    main()
