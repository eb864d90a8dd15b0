"""How a run ended on its nodes: what they say together, and its record in the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.diagnose import last_error, last_launch
from hearth.diagnose.catalogue import diagnosis, explained
from hearth.base.files import write_whole
from hearth.supervise.cause import telling

FILE = "ends.json"
"""The record's name in the run's folder on the controller."""


@dataclass(frozen=True)
class Ends:
    """How a run ended on each node, as the nodes' own record or the one who looked says it.

    `playbook` is the command that plays on the same inventory.
    """

    by_node: Mapping[str, Mapping[str, Any]]
    playbook: str

    def write(self, folder: Path) -> None:
        """Write this to the run's folder."""
        content = {"playbook": self.playbook, "ends": self.by_node}
        write_whole(folder / FILE, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Ends | None:
        """Return what was written to the run's folder, or None if nothing whole was."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(
                {node: dict(end) for node, end in content["ends"].items()}, content["playbook"]
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def state_of(ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how the run ended: the word of the nodes that know, if any does.

    Otherwise it failed if a supervisor is gone for good; and is `lost` from sight, perhaps still
    under way, if no node answers.
    """
    known = {str(end["state"]) for end in telling(ends).values()}
    if not known:
        return "failed" if any(end.get("gone") for end in ends.values()) else "lost"
    if "failed" in known:
        return "failed"
    return "finished" if known == {"finished"} else "stopped"


def launches_of(ends: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the launches that ended while the run went on, as rank 0's node has them on record."""
    return next((end.get("launches") or [] for end in ends.values() if end.get("rank") == 0), [])


def culprits(ends: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the message of each node on which the run failed or was lost from sight.

    Empty if it did neither.

    The supervisors record one cause on all nodes: the first real failure. A node that cannot
    tell its own end is taken at the word of its peers; if nobody knows more, it speaks for itself.
    """
    if state_of(ends) not in ("failed", "lost"):
        return {}
    found: dict[str, str] = {}
    for end in telling(ends).values():
        cause = end.get("cause") or {}
        if end["state"] == "failed" and cause.get("node") in ends:
            found.setdefault(cause["node"], str(cause["message"]))
    if found:
        return found
    for node, end in ends.items():
        if end.get("state") not in ("finished", "stopped"):
            cause = end.get("cause") or {}
            found[node] = str(
                cause.get("message") or end.get("message") or "ended without saying why"
            )
    return found


def silent(ends: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return why the nodes do not tell their own end of a run that the others saw to its end."""
    if state_of(ends) in ("failed", "lost"):
        return {}
    known = telling(ends)
    return {
        node: str(
            end.get("message") or (end.get("cause") or {}).get("message") or "its end is not known"
        )
        for node, end in ends.items()
        if node not in known
    }


def told(message: str, log: str, by_rank: bool) -> str:
    """Return what to show of a failure: the error as it is, its cause and its cure.

    `log` is the node's. What Hearth reports itself says what to do and stays as it is; that a
    cause is not known is said only of an error of a rank (`by_rank`).
    """
    own = last_error(last_launch(log))
    if own and own.told and own.message == message:
        return message
    found = diagnosis(message, log)
    return "\n".join([message, *(explained(found) if found or by_rank else [])])


def failures(ends: Mapping[str, Mapping[str, Any]], logs: Path) -> dict[str, str]:
    """Return what to show of each node on which the run failed; empty if it did not fail.

    `logs` is the folder with the logs of the nodes, `NODE.log`.
    """
    by_rank = "rank_failed" in {(end.get("cause") or {}).get("kind") for end in ends.values()}
    shown = {}
    for node, message in culprits(ends).items():
        file = logs / f"{node}.log"
        log = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        shown[node] = told(message, log, by_rank)
    return shown
