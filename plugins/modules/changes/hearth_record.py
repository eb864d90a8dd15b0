#!/usr/bin/python
"""Ansible module: add an entry to the record of provisioning's changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_record
short_description: Remember what other tasks change, or what no reset undoes
description:
  - Stands in front of a task that changes a file with another module, with O(before), and behind
    it, with O(after), so that C(playbooks/reset.yml) puts back the original, and leaves the file
    where somebody has changed it since.
  - Changes nothing but the record of this machine, so it never reports a change.
options:
  stage:
    description: Stage of provisioning.
    type: str
    required: true
  before:
    description: Files to remember as they are now, if they are not on the record yet.
    type: list
    elements: path
    default: []
  after:
    description: Files of O(before) as the tasks in between have left them.
    type: list
    elements: path
    default: []
  then:
    description: Commands, each a list of words, that make these files count after a reset.
    type: list
    elements: list
    default: []
  note:
    description: What no reset undoes, in a sentence, such as a package that was installed.
    type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Journal, RecordError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "stage": {"type": "str", "required": True},
            "before": {"type": "list", "elements": "path", "default": []},
            "after": {"type": "list", "elements": "path", "default": []},
            "then": {"type": "list", "elements": "list", "default": []},
            "note": {"type": "str"},
        },
        required_one_of=[("before", "after", "note")],
        supports_check_mode=True,
    )
    if not module.check_mode:
        try:
            record = Journal(module.params["stage"])
            for path in module.params["before"]:
                record.before(path, then=module.params["then"])
            for path in module.params["after"]:
                record.after(path)
            if module.params["note"]:
                record.note(module.params["note"])
        except (RecordError, OSError) as error:
            module.fail_json(msg=str(error))
    # The record is Hearth's own file: the machine itself has not changed.
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
