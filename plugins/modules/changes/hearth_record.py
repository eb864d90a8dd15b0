#!/usr/bin/python
"""Ansible module: note a change that no reset undoes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_record
short_description: Note what no reset undoes
description:
  - Changes nothing but the record of this machine, so it never reports a change.
options:
  stage:
    description: Stage of provisioning.
    type: str
    required: true
  note:
    description: A sentence on the change, such as a package that was installed.
    type: str
    required: true
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Journal, recorded


def main() -> None:
    """Run the module."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(argument_spec={"stage": text, "note": text}, supports_check_mode=True)
    if not module.check_mode:
        with recorded(module, "the change cannot be noted"):
            Journal(module.params["stage"]).note(module.params["note"])
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
