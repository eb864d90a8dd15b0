#!/usr/bin/python
"""Ansible module: add an apt repository with its key, on the record of changes."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_apt_source
short_description: Add an apt repository whose key is known by its fingerprint
description:
  - Fetches the key, compares its fingerprint, and lets it sign for this repository only. It writes
    the checked key alone, not the downloaded file. Both files are on the record of
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

import base64
import hashlib
import urllib.parse
import urllib.request
from collections.abc import Iterator

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.changes.record import Change, Journal, RecordError, result

# RFC 4880: packets (4.2), armour (6.2), public keys (11.1), fingerprints (12.2). The machine may
# lack gpg.
_PUBLIC_KEY = 6
_PARTS_OF_A_KEY = {2, _PUBLIC_KEY, 13, 14, 17}
"""Signature, public key, user id, subkey, user attribute."""
_ARMOUR = "-----BEGIN PGP PUBLIC KEY BLOCK-----"


def public_key(file: bytes) -> tuple[bytes, str]:
    """Return the packets of the one public key in `file`, and its fingerprint in capital digits.

    Write these packets to the keyring, never `file`: apt reads every armour block of a file and
    whatever follows a checksum, so a file may hold more keys than the one that was checked.

    Raises ValueError for anything but exactly one public key of version 4.
    """
    bare = _bare(file)
    found = []
    for tag, body in _packets(bare):
        if tag not in _PARTS_OF_A_KEY or (tag != _PUBLIC_KEY and not found):
            raise ValueError(f"a packet of type {tag}, which is no part of a public key")
        if tag == _PUBLIC_KEY:
            if body[:1] != b"\x04":
                raise ValueError("a key of another version than 4")
            head = b"\x99" + len(body).to_bytes(2, "big")
            # The format defines the fingerprint as SHA-1, and NVIDIA publishes that.
            found.append(hashlib.sha1(head + body, usedforsecurity=False).hexdigest().upper())
    if len(found) != 1:
        raise ValueError(f"{len(found)} public keys where one is expected")
    return bare, found[0]


def _bare(key: bytes) -> bytes:
    """Return the packets of the first armour block, or `key` itself if it has no armour."""
    text = key.decode("latin-1")
    if _ARMOUR not in text:
        return key
    block = text.split(_ARMOUR, 1)[1].partition("-----")[0]
    lines = block.replace("\r", "").strip("\n").split("\n")
    if "" in lines[:6]:
        lines = lines[lines.index("") + 1 :]  # headers such as Version end with an empty line
    body = []
    for line in lines:
        if line.startswith("="):
            break
        body.append(line)
    return base64.b64decode("".join(body), validate=True)


def _packets(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield tag and body of each packet."""
    at = 0
    try:
        while at < len(data):
            head = data[at]
            if not head & 0x80:
                raise ValueError("no OpenPGP packet")
            if head & 0x40:
                tag, first = head & 0x3F, data[at + 1]
                if first < 192:
                    length, at = first, at + 2
                elif first < 224:
                    length, at = ((first - 192) << 8) + data[at + 2] + 192, at + 3
                elif first == 255:
                    length, at = int.from_bytes(data[at + 2 : at + 6], "big"), at + 6
                else:
                    raise ValueError("a packet in parts")
            else:
                if head & 3 == 3:
                    raise ValueError("a packet without a length")
                tag, octets = (head >> 2) & 0x0F, 1 << (head & 3)
                length = int.from_bytes(data[at + 1 : at + 1 + octets], "big")
                at += 1 + octets
            if at + length > len(data):
                raise ValueError("cut off")
            yield tag, data[at : at + length]
            at += length
    except IndexError:
        raise ValueError("cut off") from None


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
