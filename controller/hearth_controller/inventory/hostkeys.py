"""Host keys: identify the machine at an address by its pinned key, and explain a mismatch.

A key is pinned in a known_hosts file under the machine's inventory name, so that a new address does
not look like a new key.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Signature algorithms whose names differ from the key type (RFC 8332).
_ALGORITHMS = {"ssh-rsa": "rsa-sha2-512,rsa-sha2-256"}


@dataclass(frozen=True)
class PublicKey:
    """An SSH public key: its type, such as ssh-ed25519, and its base64 text."""

    type: str
    text: str

    def __str__(self) -> str:
        """Return the key as ssh-keygen shows it: `SHA256:… (ED25519)`."""
        kind = self.type.removeprefix("ssh-").removeprefix("ecdsa-sha2-").split("@")[0].upper()
        return f"{self.fingerprint} ({kind})"

    @classmethod
    def from_line(cls, line: str) -> PublicKey:
        """Return the key in a line of a .pub file."""
        kind, text = line.split()[:2]
        return cls(kind, text)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the key, as OpenSSH writes it."""
        digest = hashlib.sha256(base64.b64decode(self.text)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(frozen=True)
class HostKeyAnswer:
    """The answer from an address: a host key, or the reason why there is none."""

    key: PublicKey | None = None
    reason: str = ""


@dataclass(frozen=True)
class ChosenAddress:
    """The address chosen for a machine.

    If the machine is unreachable, `address` is empty and `trouble` is the reason; `stranger` is a
    message about another machine that answers at this one's intended address.
    """

    address: str = ""
    key: PublicKey | None = None
    stranger: str = ""
    trouble: str = ""


def keys_in(known_hosts: Path, name: str) -> list[PublicKey]:
    """Return the keys in a known_hosts file under `name`, plain or hashed."""
    command = ["ssh-keygen", "-F", name, "-f", known_hosts]
    found = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    # A line that begins with @ revokes a key or names a certificate authority.
    return [PublicKey(*line.split()[1:3]) for line in found if line and line[0] not in "#@"]


def owners_in(known_hosts: Path) -> dict[str, str]:
    """Return by text of the key the machine that it is pinned for; not those with hashed names."""
    lines = known_hosts.read_text().splitlines() if known_hosts.exists() else []
    pins = (line.split() for line in lines if line[:1] not in ("", "#", "@", "|"))
    return {words[2]: words[0] for words in pins if len(words) > 2}


def algorithms(pinned: Sequence[PublicKey]) -> str:
    """Return ssh's HostKeyAlgorithms, preferring the types of the pinned keys, or ''."""
    types = dict.fromkeys(_ALGORITHMS.get(key.type, key.type) for key in pinned)
    return f"^{','.join(types)}" if types else ""


def choose(
    name: str,
    answers: Mapping[str, HostKeyAnswer],
    pinned: Sequence[PublicKey],
    file: str,
    owners: Mapping[str, str],
) -> ChosenAddress:
    """Choose the address for connections to the machine `name`.

    `answers` are by address: first the machine's intended address, then its possible current one.
    `file` is the known_hosts file, and `owners` are the machines in it by text of the key.
    """
    wanted = next(iter(answers))
    answering = {address: answer.key for address, answer in answers.items() if answer.key}
    if not answering:
        return ChosenAddress(trouble=_silent(answers))
    if pinned:
        right = [address for address, key in answering.items() if key in pinned]
        if not right:
            address, key = next(iter(answering.items()))
            # A line for the address itself names no machine.
            if (owner := owners.get(key.text)) and owner not in answers:
                return ChosenAddress(trouble=another(name, address, owner, file))
            return ChosenAddress(trouble=changed(name, address, pinned, key, file))
        chosen = right[0]
    else:
        # No key is pinned yet. If the keys differ, the intended address belongs to another machine,
        # and the last address is the machine's current one according to the inventory.
        same_key = len(set(answering.values())) == 1
        chosen = list(answering)[0 if same_key else -1]
    stranger = ""
    if wanted in answering and answering[wanted] != answering[chosen] and chosen != wanted:
        stranger = f"another machine answers at {wanted} (host key {answering[wanted]})"
    return ChosenAddress(address=chosen, key=answering[chosen], stranger=stranger)


def _silent(answers: Mapping[str, HostKeyAnswer]) -> str:
    tried = "; ".join(f"{address}: {answer.reason}" for address, answer in answers.items())
    return (
        f"no SSH server answers at {' or '.join(answers)}. Is it switched on and plugged in, and "
        f"is the address right? ({tried})"
    )


def another(name: str, address: str, owner: str, file: str) -> str:
    """Return the explanation of a host key that is pinned for another machine."""
    return (
        f"{owner} answers at {address}, by its host key in {file}, so nothing was sent to it. If "
        f"{name} is to have that address, first_address says where it is today, and {owner} moves "
        f"first (where the two swap, to a third address that is free)"
    )


def changed(
    name: str, address: str, pinned: Sequence[PublicKey], present: PublicKey, file: str
) -> str:
    """Return the explanation of a host key that is not the pinned one."""
    return (
        f"the host key has changed, so nothing was sent to {address}.\n"
        f"pinned   {', '.join(map(str, pinned))} in {file}\n"
        f"present  {present} at {address}\n"
        "Either the machine was installed anew, or another machine answers at that address.\n"
        "On the machine itself this shows its key:  "
        "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub\n"
        "If that is the present one, forget the pinned one and play again:  "
        f"ssh-keygen -R {name} -f {file}"
    )
