#!/usr/bin/python
"""Ansible module: add an apt repository with its key, on the record of changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_apt_source
short_description: Add an apt repository whose key is known by its fingerprint
description:
  - Fetches the key, compares its fingerprint, and lets it sign for this repository only. What is
    written is the checked key alone, not the file that it came in. Both files are on the record of
    changes (see M(hearth_record)), so that C(playbooks/reset.yml) takes them away.
  - A key that is there already with this fingerprint is not fetched again.
options:
  name:
    description: Name of the files, and for people.
    type: str
    required: true
  url:
    description:
      - Address of a flat repository. One of the machine's own files (C(file:)) needs no key.
    type: str
    required: true
  key_url:
    description: Where the key is.
    type: str
    default: ""
  fingerprint:
    description: Its fingerprint, 40 hexadecimal digits.
    type: str
    default: ""
  priority:
    description: >-
      Priority of its packages for apt, such as V(100) for those that no other repository has; empty
      is that of any repository.
    type: str
    default: ""
"""

import urllib.parse
import urllib.request

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Change, Journal, RecordError, result
from ansible.module_utils.hearth_node.driver.openpgp import public_key

_SECONDS = 30
_LARGEST = 1 << 20


def fetched(url: str) -> bytes:
    """Download `url` and return its content. Raises OSError."""
    with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
        return answer.read(_LARGEST)


def checked(file: bytes, wanted: str, where: str) -> bytes:
    """Return the packets of the key in `file` if it is the wanted one. Raises ValueError."""
    try:
        key, found = public_key(file)
    except ValueError as error:
        raise ValueError(f"{where} is not a key that can be used: {error}") from None
    if found != wanted.replace(" ", "").upper():
        raise ValueError(
            f"the key at {where} has the fingerprint {found}, and {wanted} was expected; it is not "
            "used. If its owner publishes a new key, bring Hearth up to date"
        )
    return key


def present(path: str, wanted: str) -> bytes:
    """Return the key at `path`, or b'' if there is none or a different one."""
    try:
        with open(path, "rb") as file:
            return checked(file.read(), wanted, path)
    except (OSError, ValueError):
        return b""


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "url": {"type": "str", "required": True},
            "key_url": {"type": "str", "default": ""},
            "fingerprint": {"type": "str", "default": "", "no_log": False},
            "priority": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given, check = module.params, module.check_mode
    key_path = f"/etc/apt/keyrings/hearth-{given['name']}.gpg"
    path = f"/etc/apt/sources.list.d/hearth-{given['name']}.sources"
    local = given["url"].startswith("file:")
    if not local and not (given["key_url"] and given["fingerprint"]):
        module.fail_json(msg=f"{given['url']} needs a key: give key_url and fingerprint.")
    trust = "Trusted: yes" if local else f"Signed-By: {key_path}"
    text = f"# Written by Hearth.\nTypes: deb\nURIs: {given['url']}\nSuites: /\n{trust}\n"
    try:
        record = Journal("driver", check)
        changes = []
        if not local:
            key = present(key_path, given["fingerprint"])
            if not key and check:
                module.exit_json(changed=True)
            key = key or checked(fetched(given["key_url"]), given["fingerprint"], given["key_url"])
            changes.append(Change(record.write(key_path, key).changed))  # binary: no diff
        if given["priority"]:  # before the packages can be seen
            host = urllib.parse.urlsplit(given["url"]).hostname or ""
            pin = f'Package: *\nPin: origin "{host}"\nPin-Priority: {given["priority"]}\n'
            preferences = f"/etc/apt/preferences.d/hearth-{given['name']}"
            changes.append(record.write(preferences, f"# Written by Hearth.\n{pin}".encode()))
        changes.append(record.write(path, text.encode()))
    except (RecordError, OSError, ValueError) as error:
        module.fail_json(msg=f"{given['url']} is not set up: {error}")
    module.exit_json(**result(changes))


if __name__ == "__main__":
    main()
