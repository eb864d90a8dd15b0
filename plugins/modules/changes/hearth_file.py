#!/usr/bin/python
"""Ansible module: write, link, remove or edit a system file, on the record of changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_file
short_description: Change a file of the system so that it can be undone
description:
  - The first time a path is changed its original goes into the record of this machine, from which
    C(playbooks/reset.yml) puts it back.
  - One of O(content), O(block), O(link) or O(state=absent) says what is wanted.
options:
  path:
    description: The file.
    type: path
    required: true
  stage:
    description: Stage of provisioning that wants it, such as V(power).
    type: str
    required: true
  content:
    description: What the whole file holds.
    type: str
  block:
    description: Lines kept between two marking lines; all other lines are let be. See O(marker).
    type: str
  marker:
    description: Name of the block, in its marking lines.
    type: str
  link:
    description: Target of a symbolic link. A link to V(/dev/null) masks a unit of systemd.
    type: str
  state:
    description: V(absent) takes the file, or with O(marker) the block, away.
    type: str
    choices: [present, absent]
    default: present
  mode:
    description: Mode in octal digits; by default that of the present file, or V(0644).
    type: str
  owner:
    description: User that owns it, with that user's group; by default as the present file.
    type: str
  then:
    description: Commands, each a list of words, that make the original count after a reset.
    type: list
    elements: list
    default: []
  show:
    description: Whether C(--diff) shows contents; V(false) for a file with secrets in it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Closing the lid changes nothing
  hearth_file:
    path: /etc/systemd/logind.conf.d/50-hearth.conf
    content: |
      [Login]
      HandleLidSwitch=ignore
    stage: power
    then: [[systemctl, reload, systemd-logind]]
  notify: Reload logind
"""

RETURN = r"""
path:
  description: The file.
  returned: always
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Change, Journal, RecordError


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "stage": {"type": "str", "required": True},
            "content": {"type": "str"},
            "block": {"type": "str"},
            "marker": {"type": "str"},
            "link": {"type": "str"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "mode": {"type": "str"},
            "owner": {"type": "str"},
            "then": {"type": "list", "elements": "list", "default": []},
            "show": {"type": "bool", "default": True},
        },
        mutually_exclusive=[("content", "block", "link"), ("content", "link", "marker")],
        required_if=[("state", "present", ("content", "block", "link"), True)],
        required_by={"block": "marker"},
        supports_check_mode=True,
    )
    try:
        change = apply(Journal(), module.params, module.check_mode)
    except (RecordError, OSError) as error:
        module.fail_json(msg=f"{module.params['path']} cannot be changed: {error}")
    shown = {"diff": change.diff} if module.params["show"] and change.changed else {}
    module.exit_json(changed=change.changed, path=module.params["path"], **shown)


def apply(record: Journal, wanted: dict, check: bool) -> Change:
    """Bring the file to the wanted state; return the change."""
    path = wanted["path"]
    common = {"stage": wanted["stage"], "then": wanted["then"], "check": check}
    absent = wanted["state"] == "absent"
    if absent and not wanted["marker"]:
        return record.remove(path, **common)
    common["owner"] = wanted["owner"]
    if wanted["link"] is not None:
        return record.link(path, wanted["link"], **common)
    common["mode"] = int(wanted["mode"], 8) if wanted["mode"] else None
    if wanted["marker"]:
        text = None if absent else wanted["block"]
        return record.block(path, wanted["marker"], text, **common)
    return record.write(path, wanted["content"].encode(), **common)


if __name__ == "__main__":
    main()
