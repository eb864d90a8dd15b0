#!/usr/bin/python
"""Ansible module: report the run under way on this node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_busy
short_description: Say which run is under way on this node, and which machine it is
description:
  - The supervisor of a run holds a lock in the workspace for as long as it lives, however it ends.
    Needs neither the environment nor the training code.
options:
  workspace:
    description: The workspace. May start with C(~).
    type: str
    required: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, run_under_way
from ansible.module_utils.hearth_node.driver.inspect import boot


def main() -> None:
    """Run the module; return the name of the `run` ('' for none) and this `boot`'s id."""
    module = AnsibleModule(
        argument_spec={"workspace": {"type": "str", "required": True}}, supports_check_mode=True
    )
    run = run_under_way(absolute(module.params["workspace"]))
    module.exit_json(changed=False, run=run, boot=boot())


if __name__ == "__main__":
    main()
