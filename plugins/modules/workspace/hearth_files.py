#!/usr/bin/python
"""Ansible module: write small text files into a folder of this node, all in one call."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_files
short_description: Write small text files into a folder, all in one call
description:
  - Each takes its place by one rename. A name that ends with C(.sh) becomes a program (mode 0755).
  - The action plugin of the same name calls the node only for files that differ from O(present).
options:
  folder:
    description: The folder, which exists.
    type: path
    required: true
  texts:
    description: Text by name.
    type: dict
    required: true
  names:
    description: Those of O(texts) to write; the others are left out.
    type: list
    elements: str
    required: true
  present:
    description: >-
      Checksums (SHA-256) of the files that are there with their mode, by name, as
      M(hearth_workspace) returns them. For the action plugin only.
    type: dict
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.files import write_whole
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.workspace.folder import has_mode, mode_of


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "texts": {"type": "dict", "required": True},
            "names": {"type": "list", "elements": "str", "required": True},
        },
        supports_check_mode=True,
    )
    folder, diff = module.params["folder"], []
    try:
        for name in module.params["names"]:
            path, text = os.path.join(folder, name), module.params["texts"][name]
            before = text_of(path)
            if before == text and has_mode(path):
                continue
            diff.append({"before": before, "after": text, "before_header": path})
            if not module.check_mode:
                write_whole(Path(path), text)
                os.chmod(path, mode_of(path))
    except OSError as error:
        module.fail_json(msg=f"{error.filename}: {error.strerror}; correct that")
    module.exit_json(changed=bool(diff), diff=diff)


if __name__ == "__main__":
    main()
