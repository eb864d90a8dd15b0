#!/usr/bin/python
"""Ansible module: create a node's workspace folders, and unpack the training code."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_workspace
short_description: Make the workspace of this node what it should be
description:
  - Code that a run under way may start again with is let be, on this node as on the others.
  - The action plugin of the same name builds the archive on the controller and sends it only
    when the code on the node is not the same, so that a node that is up to date costs one
    small call.
options:
  path:
    description: The workspace. May start with C(~).
    type: str
    required: true
  folders:
    description: Folders that it has.
    type: list
    elements: str
    required: true
  code:
    description:
      - What C(scripts/) holds, checksum (SHA-256) by relative path. Files that are not named
        here are removed; C(__pycache__) is let be. The action plugin fills this in from O(source).
    type: dict
  source:
    description: Folder of the controller that holds the training code. For the action plugin only.
    type: path
  archive:
    description: Archive on the node with all files of O(code). From the action plugin.
    type: path
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.systemd import LINGER
from ansible.module_utils.hearth_node.base import absolute, run_under_way
from ansible.module_utils.hearth_node.workspace.folder import differing, take_place, unpack

_SYSTEMD = "/run/systemd/system"  # sd_booted(3): exists if systemd is the init


def main() -> None:
    """Run the module.

    It returns the absolute `path`, the `differing` files of the code, the run for which they were
    left so (`under_way`, or ''), and `findings`. Without any, also the owner (`user`, '' without
    systemd) and whether that user's services already outlast the login (`lingers`).
    """
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "str", "required": True},
            "folders": {"type": "list", "elements": "str", "required": True},
            "code": {"type": "dict", "required": True},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    path = absolute(module.params["path"])
    scripts = os.path.join(path, "scripts")
    folders = [path, *(os.path.join(path, name) for name in module.params["folders"])]
    code = module.params["code"]
    try:
        missing = [folder for folder in folders if not os.path.isdir(folder)]
        if not module.check_mode:
            for folder in missing:
                os.makedirs(folder, exist_ok=True)
        wrong = differing(scripts, code, let_be=["__pycache__"])
        under_way = run_under_way(path) if wrong else ""
        if wrong and not under_way and module.params["archive"] and not module.check_mode:
            unpack(module.params["archive"], f"{scripts}.new")
            take_place(f"{scripts}.new", scripts, module.tmpdir)
    except OSError as error:
        module.exit_json(
            changed=False,
            path=path,
            differing=[],
            under_way="",
            findings=[
                f"the workspace {path} cannot be written ({error.strerror}: {error.filename}); "
                "give this user the right to, or set hearth_workspace to another folder"
            ],
        )
    owner = os.stat(path).st_uid if os.path.exists(path) else os.geteuid()
    user = pwd.getpwuid(owner).pw_name if os.path.isdir(_SYSTEMD) else ""
    module.exit_json(
        changed=bool(missing or (wrong and not under_way)),
        path=path,
        user=user,
        lingers=not user or (LINGER / user).exists(),
        differing=wrong,
        under_way=under_way,
        findings=[],
    )


if __name__ == "__main__":
    main()
