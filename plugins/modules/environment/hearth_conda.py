#!/usr/bin/python
"""Ansible module: make `conda activate hearth` work in a login shell."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_conda
short_description: Give the environment of a node its name for conda
description:
  - Links the environment into a folder that every conda of the user searches, and lets a login
    shell without another conda use Hearth's. No conda of the user's and no start-up file in the
    home is changed; an environment of the user's that has the name keeps it.
  - Needs root. Both files are on the record of changes.
options:
  python:
    description: The environment's Python.
    type: str
    required: true
  miniforge:
    description: Folder of Hearth's own Miniforge.
    type: str
    required: true
  home:
    description: Home of the user, as the user's own shell has it.
    type: path
    required: true
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute
from ansible.module_utils.hearth_node.changes.record import HOME, Journal, recorded, result
from ansible.module_utils.hearth_node.environment.python import (
    PROFILE,
    folder_of,
    is_taken,
    link,
    script,
)
from ansible.module_utils.hearth_node.system.user import login_user


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "python": {"type": "str", "required": True},
            "miniforge": {"type": "str", "required": True},
            "home": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    user, check = login_user(), module.check_mode
    os.environ["HOME"] = module.params["home"]  # sudo may have set root's
    miniforge = module.params["miniforge"]
    path, folder, note = link(miniforge), folder_of(absolute(module.params["python"])), ""
    with recorded(module, "the environment cannot get its name for conda"):
        changes = [Journal("python", check).write(PROFILE, script(miniforge).encode(), mode=0o644)]
        if is_taken(path, folder):
            note = f"{path} is not Hearth's and stays; Hearth's is `conda activate {folder}`"
        else:
            changes.append(Journal(HOME, check, user).link(path, folder))
    module.exit_json(note=note, **result(changes))


if __name__ == "__main__":
    main()
