#!/usr/bin/python
"""Ansible module: let a key log in as the user that Ansible logs in as."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_authorized
short_description: A key in the authorized_keys of the user that Ansible logs in as
description:
  - A key that is there already is left as it is, wherever it stands. Else it is added as a block of
    its own, which C(playbooks/reset.yml) takes out.
  - Without O(line) that block is taken out.
  - Folder and file get modes that sshd accepts.
  - Done with the user's own rights. A file that is not the user's, such as one of root's behind a
    link, is an error.
  - Needs root, for the record of changes.
options:
  line:
    description: The line of C(authorized_keys), options included.
    type: str
    default: ""
  marker:
    description: Name of the block.
    type: str
    required: true
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.changes.record import Change, Journal, RecordError, result
from ansible.module_utils.hearth_node.system.user import (
    acting_as,
    in_ssh,
    links_of,
    login_user,
    open_home,
    writable_by_others,
)


def has(lines: list[str], wanted: str) -> bool:
    """Return whether a line is present; for one without options the comment may differ."""
    if wanted.startswith(("ssh-", "ecdsa-", "sk-")):
        return wanted.split()[:2] in [line.split()[:2] for line in lines]
    return wanted in lines


def main() -> None:
    """Run the module; return the `user` whose file it is."""
    module = AnsibleModule(
        argument_spec={
            "line": {"type": "str", "default": ""},
            "marker": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    line, marker = module.params["line"].strip(), module.params["marker"]
    user, check = login_user(), module.check_mode
    path = in_ssh(user, "authorized_keys")
    if line and (fault := open_home(user)):
        module.fail_json(msg=fault)
    os.umask(0o077)  # only the owner may read a new .ssh
    rights = user.pw_uid, user.pw_gid
    try:
        record, changes = Journal("ssh", check, user), []
        folder = os.path.dirname(path)
        with acting_as(*rights):
            there = [each.strip() for each in text_of(path).splitlines()]
            open_to_others = bool(line) and writable_by_others(folder)
            if line:
                right = has(there, line) and not writable_by_others(path)
            else:
                right = f"# hearth: {marker} begin" not in there
        if not right:
            changes.append(record.block(path, marker, line or None, mode=0o600))
        if open_to_others and not check:
            with acting_as(*rights):
                os.chmod(folder, 0o700)
            record.note(f"{folder} is now writable by its owner only")
    except (RecordError, OSError) as error:
        name, links = user.pw_name, links_of(user, ["authorized_keys"])
        module.fail_json(
            msg=f"{name}'s authorized_keys cannot be changed as {name}: {error}{links}; let "
            f"{os.path.join(user.pw_dir, '.ssh', 'authorized_keys')} be a file of {name}'s own"
        )
    if open_to_others:
        changes.append(Change(True))
    module.exit_json(user=user.pw_name, **result(changes))


if __name__ == "__main__":
    main()
