#!/usr/bin/python
"""Ansible module: let the workspace user's services start at boot and outlive the login."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_linger
short_description: Let the services of the workspace's user outlast the login
description:
  - Switches on what systemd calls lingering. The run of a node can then be a unit of its user,
    which needs no root and comes back after a reboot.
  - Needs root. Does nothing where there is no systemd, and nothing to a user who has it already.
options:
  workspace:
    description: The workspace of the node, whose owner is the user meant.
    type: path
    required: true
attributes:
  check_mode:
    support: full
"""

EXAMPLES = r"""
- name: Runs come back after a reboot
  hearth_linger:
    workspace: /home/me/ai-cluster
  become: true
"""

RETURN = r"""
findings:
  description: What stands in the way, one sentence each; empty if nothing does.
  returned: always
  type: list
  elements: str
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Journal, RecordError, run_all

FOLDER = "/var/lib/systemd/linger"
SYSTEMD = "/run/systemd/system"  # sd_booted(3): exists if systemd is the init


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"workspace": {"type": "path", "required": True}}, supports_check_mode=True
    )
    if not os.path.isdir(SYSTEMD):
        module.exit_json(changed=False, findings=[])
    try:
        user = pwd.getpwuid(os.stat(module.params["workspace"]).st_uid).pw_name
    except FileNotFoundError:  # in check mode on a bare machine
        module.exit_json(changed=module.check_mode, findings=[])
    path = os.path.join(FOLDER, user)
    if os.path.exists(path):
        module.exit_json(changed=False, findings=[])
    undo = ["loginctl", "disable-linger", user]
    failed = []
    try:
        Journal().write(
            path, b"", stage="workspace", mode=0o644, then=[undo], check=module.check_mode
        )
        if not module.check_mode:
            failed = run_all([["loginctl", "enable-linger", user]])
    except (RecordError, OSError) as error:
        failed = [f"{path} cannot be written: {error}"]
    module.exit_json(
        changed=True, findings=[f"{why}; runs would not survive a reboot" for why in failed]
    )


if __name__ == "__main__":
    main()
