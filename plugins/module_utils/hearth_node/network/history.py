"""Store the way back to a NIC's setup from before Hearth, beside the record of changes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from ansible.module_utils.hearth_node.base import write_private
from ansible.module_utils.hearth_node.changes.record import FOLDER
from ansible.module_utils.hearth_node.network import keyfile
from ansible.module_utils.hearth_node.network.change import Candidate, without_secrets

_FILE = os.path.join(FOLDER, "network.json")
_LEASED = {"ipv4": {"method": "auto", "address1": None, "dns": None}}


@dataclass(frozen=True)
class Past:
    """A confirmed change, and the machine's addresses before it."""

    candidate: Candidate
    addresses: list[str]


def keep(candidate: Candidate, addresses: list[str]) -> None:
    """Store a change that is about to be kept; of several to one file, the first undo wins."""
    known = load()
    if known and known.candidate.target == candidate.target:
        addresses, undo = known.addresses, known.candidate.undo
        candidate = replace(candidate, undo=undo)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    write_private(_FILE, json.dumps({"candidate": asdict(candidate), "addresses": addresses}))


def load() -> Past | None:
    """Return the stored change, or None."""
    try:
        with open(_FILE, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    return Past(Candidate(**found["candidate"]), found["addresses"])


def forget() -> None:
    """Remove the stored change."""
    os.unlink(_FILE)


def backwards(ours: Candidate, original: str | None) -> Candidate:
    """Return the candidate that reverts `ours`; `original` is the earlier content of its file.

    If there was no file, NetworkManager had created a profile of its own, which uses DHCP: while
    the way back is tried, the file uses DHCP too.
    """
    absent = original is None
    return replace(
        ours,
        content=keyfile.changed(ours.content, _LEASED) if absent else original,
        apply=ours.apply if absent else ours.undo,
        undo=ours.apply,
        before=without_secrets(ours.content),
        after=without_secrets(original or ""),
    )
