#!/usr/bin/python
"""Ansible module: let a user's systemd run from boot to shutdown, whether or not the user is in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_linger
short_description: A user's systemd runs from boot to shutdown
description:
  - It starts at boot and outlasts the login, which systemd calls lingering.
  - If it is ended nevertheless, killed or stopped by a logout script, the system starts it again
    (C(Upholds=) in a drop-in for C(multi-user.target)), and with it the unit of a run under way.
  - Needs root. Both are on the record of changes.
options:
  user:
    description: Name of the user.
    type: str
    required: true
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import (
    Change,
    Journal,
    recorded,
    result,
    run_all,
)
from ansible.module_utils.hearth_node.system.user import drop_in, drop_in_text, linger_file

_RELOAD = ["systemctl", "daemon-reload"]


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={"user": {"type": "str", "required": True}}, supports_check_mode=True
    )
    user, check = module.params["user"], module.check_mode
    file, commands = linger_file(user), []
    with recorded(module, f"the systemd of {user} cannot be kept running"):
        record = Journal("workspace", check)
        changes = [Change(not os.path.exists(file))]
        if changes[0].changed:
            if not check:
                record.before(file, then=[["loginctl", "disable-linger", user]])
            commands.append(["loginctl", "enable-linger", user])
        text = drop_in_text(pwd.getpwnam(user).pw_uid)
        changes.append(record.write(drop_in(user), text.encode(), mode=0o644, then=[_RELOAD]))
        if changes[1].changed:
            commands.append(_RELOAD)
    if failed := [] if check else run_all(commands):
        module.fail_json(msg="\n".join(failed), changed=True)
    module.exit_json(**result(changes))


if __name__ == "__main__":
    main()
