"""Extract the one OpenPGP public key from a file, with its fingerprint.

Works without gpg, which the machine may lack. Formats: RFC 4880, sections 4.2
(packets), 6.2 (armour), 11.1 (transferable public keys) and 12.2 (fingerprints).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

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
