"""How to go back to what set up a NIC before Hearth did: kept beside the record of changes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace

from ansible.module_utils.hearth_node.changes.record import FOLDER
from ansible.module_utils.hearth_node.network import keyfile
from ansible.module_utils.hearth_node.network.change import Candidate, without_secrets

_FILE = os.path.join(FOLDER, "network.json")
_LEASED = {"ipv4": {"method": "auto", "address1": None, "dns": None}}


@dataclass(frozen=True)
class Past:
    """A change that was confirmed, and the addresses that the machine had before it."""

    candidate: Candidate
    addresses: list[str]


def keep(candidate: Candidate, addresses: list[str]) -> None:
    """Remember a change that is about to be kept; the first one of a file counts."""
    known = load()
    if known and known.candidate.target == candidate.target:
        addresses, undo = known.addresses, known.candidate.undo
        candidate = replace(candidate, undo=undo)
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    fresh = f"{_FILE}.new"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump({"candidate": asdict(candidate), "addresses": addresses}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, _FILE)


def load() -> Past | None:
    """Return what was remembered, or None."""
    try:
        with open(_FILE, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return None
    return Past(Candidate(**found["candidate"]), found["addresses"])


def forget() -> None:
    """Remove what was remembered."""
    os.unlink(_FILE)


def backwards(ours: Candidate, original: str | None) -> Candidate:
    """Return the candidate that leads back from `ours`; `original` is what its file held before.

    Where there was no file, NetworkManager had made a profile for itself, which leases an address:
    so does the file for as long as the way back is tried.
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
