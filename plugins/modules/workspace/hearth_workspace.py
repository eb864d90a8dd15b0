#!/usr/bin/python
"""Ansible module: create a node's workspace folders, and unpack the training code."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_workspace
short_description: Bring the workspace of this node up to date
description:
  - Code that a run under way may start again with stays, on this node as on the others.
  - A mark in the workspace lists the paths that Hearth made; C(scripts/) is replaced only if it is
    one of them.
  - The action plugin of the same name builds the archive on the controller and sends it only
    when the code on the node is not the same, so that a node that is up to date costs one
    small call.
options:
  path:
    description: The workspace. May start with C(~).
    type: str
    required: true
  code:
    description:
      - What C(scripts/) holds, checksum (SHA-256) by relative path. Files that are not named
        here are removed; C(__pycache__) stays. The action plugin fills this in from O(source).
    type: dict
  source:
    description: Folder of the controller that holds the training code. For the action plugin only.
    type: path
  archive:
    description: Archive on the node with all files of O(code). From the action plugin.
    type: path
  files:
    description:
      - Whether the workspace gets files for a person. Files of these names that Hearth did not
        make stay.
    type: bool
    default: false
  address:
    description: With O(files), the cluster address of this node.
    type: str
  python:
    description:
      - Python of the environment that trains, which C(hearth-lend) calls. May start with C(~).
      - Without it there is no C(hearth-lend).
    type: str
  nproc:
    description: With O(files), processes on the node; 0 is one per NVIDIA GPU, and at least one.
    type: int
    default: 0
"""

import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.nvidia import ranks_of
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.network.nics import nic_with, see
from ansible.module_utils.hearth_node.system.memory import inspect_memory
from ansible.module_utils.hearth_node.system.user import lingers
from ansible.module_utils.hearth_node.workspace.folder import checksum, has_mode
from ansible.module_utils.hearth_node.workspace.mark import FILES
from ansible.module_utils.hearth_node.workspace.place import place_workspace

_SYSTEMD = "/run/systemd/system"  # sd_booted(3): exists if systemd is the init


def main() -> None:
    """Run the module.

    It returns the absolute `path`, the `differing` files of the code, the run that kept them
    so (`under_way`, or ''), and `findings`. Without any, also the owner (`user`, '' without
    systemd) and whether that user's systemd already runs from boot to shutdown (`lingers`). With
    `files` also those that are Hearth's to write, the `checksums` of those that are there with
    their mode, and for them `interface` ('' for none), absolute `python` and resolved `nproc`.
    """
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "str", "required": True},
            "code": {"type": "dict", "required": True},
            "archive": {"type": "path"},
            "files": {"type": "bool", "default": False},
            "address": {"type": "str"},
            "python": {"type": "str"},
            "nproc": {"type": "int", "default": 0},
        },
        required_if=[("files", True, ["address", "python"])],
        supports_check_mode=True,
    )
    given = module.params
    path = absolute(given["path"])
    files = FILES if given["files"] else ()
    python = absolute(given["python"]) if given["python"] else ""
    state = place_workspace(path, given["code"], given["archive"], module, python, files)
    if state["findings"]:
        module.exit_json(path=path, **state)
    if files:
        memory = inspect_memory(python)
        places = {name: os.path.join(path, name) for name in state["files"]}
        state |= {
            "checksums": {name: checksum(at) for name, at in places.items() if has_mode(at)},
            "python": python,
            "interface": nic_with(see(), given["address"]),
            "nproc": ranks_of(memory, given["nproc"]),
        }
    owner = os.stat(path).st_uid if os.path.exists(path) else os.geteuid()
    user = pwd.getpwuid(owner).pw_name if os.path.isdir(_SYSTEMD) else ""
    module.exit_json(path=path, user=user, lingers=not user or lingers(user), **state)


if __name__ == "__main__":
    main()
