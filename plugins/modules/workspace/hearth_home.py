#!/usr/bin/python
"""Ansible module: find the other nodes whose workspace is this node's folder, too."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_home
short_description: Leave this node's mark in its workspace, and read those of the others
description:
  - Each node writes a mark with a new token. Nodes that do so in one play share a folder if one of
    them reads the token that another has just written; the mark of an earlier play, as in a copied
    home, has none of these tokens. See M(hearth_homes).
options:
  workspace:
    description: The workspace. May start with C(~).
    type: str
    required: true
  node:
    description: The node's name in the inventory.
    type: str
    required: true
"""

import glob
import os
import secrets

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import absolute, text_of, write_private
from ansible.module_utils.hearth_node.workspace.mark import node_mark


def main() -> None:
    """Run the module; return this node's `token`, and those that are `seen` in its workspace.

    In check mode no mark is written, and none is seen. A workspace that cannot be written is a
    finding of M(hearth_workspace).
    """
    module = AnsibleModule(
        argument_spec={
            "workspace": {"type": "str", "required": True},
            "node": {"type": "str", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, token="", seen=[])
    workspace, token = absolute(module.params["workspace"]), secrets.token_hex(16)
    own = node_mark(workspace, module.params["node"])
    try:
        os.makedirs(workspace, exist_ok=True)
        # As a new file, after which an NFS client lists the folder anew.
        write_private(own, token)
    except OSError:
        module.exit_json(changed=False, token="", seen=[])
    marks = glob.glob(node_mark(glob.escape(workspace), "*"))
    seen = [text_of(path) for path in marks if path != own]
    module.exit_json(changed=False, token=token, seen=seen)


if __name__ == "__main__":
    main()
