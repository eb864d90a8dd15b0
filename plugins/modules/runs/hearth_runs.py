#!/usr/bin/python
"""Ansible module: list the runs recorded on a node, or remove one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_runs
short_description: Say what a node knows of its runs, and remove one where it is asked for
description:
  - Needs neither the environment nor the training code of the node.
options:
  workspace:
    description: The node's workspace. May start with C(~).
    type: str
    required: true
  remove:
    description: Name of the run to remove; never one whose supervisor is alive.
    type: str
    default: ""
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.places import RUN_NAME
from ansible.module_utils.hearth_node.base import absolute, run_under_way
from ansible.module_utils.hearth_node.runs.digest import look, paths, remove, size


def main() -> None:
    """Run the module; return the `runs` as `look` finds them, or what was `removed`.

    That is bytes by path in the workspace; in check mode, what would be removed.
    """
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "remove": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    workspace, run = absolute(module.params["workspace"]), module.params["remove"]
    if not run:
        module.exit_json(changed=False, runs=look(workspace))
    if not RUN_NAME.fullmatch(run):
        module.fail_json(msg=f"{run!r} cannot be the name of a run; nothing was removed")
    if run_under_way(workspace) == run:
        module.fail_json(msg=f"run '{run}' is under way here: stop it first; nothing was removed")
    there = {path: size(os.path.join(workspace, path)) for path in paths(workspace, run)}
    if there and not module.check_mode:
        try:
            remove(workspace, run)
        except OSError as error:
            module.fail_json(msg=f"{error.filename} cannot be removed: {error.strerror}")
    module.exit_json(changed=bool(there), removed=there)


if __name__ == "__main__":
    main()
