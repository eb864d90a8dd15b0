#!/usr/bin/python
"""Ansible module: what a node's user has of Hearth, and its removal where it is asked for."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_leave
short_description: Workspace and environment of a node, kept unless asked
description:
  - Says whether a run is under way on the node, and removes what it is asked to.
  - Run it as the user whose they are.
options:
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  remove:
    description: What to remove.
    type: list
    elements: str
    choices: [environment, workspace]
    default: []
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Is a run under way?
  hearth_leave:
    workspace: ~/ai-cluster
  register: reset_home
"""

RETURN = r"""
run:
  description: Name of the run that has the node now, or nothing.
  returned: always
  type: str
present:
  description: What there is, path by kind.
  returned: always
  type: dict
"""

import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node import absolute, run_under_way

_ENVIRONMENT = "~/.local/share/hearth"


def found(workspace: str) -> dict[str, str]:
    """Return what is there. A folder counts as workspace only with the training code in it."""
    present = {}
    if os.path.isdir(os.path.join(workspace, "scripts", "hearth")):
        present["workspace"] = workspace
    if os.path.isdir(absolute(_ENVIRONMENT)):
        present["environment"] = absolute(_ENVIRONMENT)
    return present


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "remove": {
                "type": "list",
                "elements": "str",
                "choices": ["environment", "workspace"],
                "default": [],
            },
        },
        supports_check_mode=True,
    )
    workspace = absolute(module.params["workspace"])
    present = found(workspace)
    gone = [present[kind] for kind in module.params["remove"] if kind in present]
    try:
        for path in [] if module.check_mode else gone:
            shutil.rmtree(path)
    except OSError as error:
        module.fail_json(msg=f"{error.filename} cannot be removed: {error.strerror}")
    module.exit_json(changed=bool(gone), run=run_under_way(workspace), present=present)


if __name__ == "__main__":
    main()
