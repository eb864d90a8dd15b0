"""The end of a run: the nodes' reports merged, and the record of it in the run's folder."""

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

_KEPT = ("state", "cause", "message", "rank", "generation", "launches", "nodes")


@dataclass(frozen=True)
class Ends:
    """The end of a run on each node, as recorded by the node or seen by the controller.

    `playbook` is the command that plays on the same inventory.
    """

    by_node: Mapping[str, Mapping[str, Any]]
    playbook: str

    def write(self, folder: Path) -> None:
        """Write the record to the run's folder."""
        ends = {
            node: {name: end[name] for name in _KEPT if name in end}
            for node, end in self.by_node.items()
        }
        content = {"playbook": self.playbook, "ends": ends}
        write_whole(folder / FILE, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Ends | None:
        """Read the record from the run's folder, or return None if it is missing or incomplete."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            return cls(
                {node: dict(end) for node, end in content["ends"].items()}, content["playbook"]
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None


def state_of(ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the final state of the run, according to the nodes that know it.

    If none knows, the run failed if a supervisor is gone for good; otherwise it is `lost`: no node
    answers, and it may still be active.
    """
    known = {str(end["state"]) for end in telling(ends).values()}
    if not known:
        return "failed" if any(end.get("gone") for end in ends.values()) else "lost"
    if "failed" in known:
        return "failed"
    return "finished" if known == {"finished"} else "stopped"


def launches_of(ends: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the launches that ended before the run did, from the record of rank 0's node."""
    return next((end.get("launches") or [] for end in ends.values() if end.get("rank") == 0), [])


def culprits(ends: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the message of each node on which the run failed or was lost.

    The result is empty for any other state.

    The supervisors record one cause on all nodes: the first real failure. For a node without a
    record of its end, the records of its peers count, and its own message only if they have none.
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
    """Return the reasons why nodes do not report the end of a run that the others completed."""
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
    """Return the text for a failure: the original error, its cause and its fix.

    `log` is the node's. Hearth's own errors already say what to do and stay unchanged. An unknown
    cause is mentioned only for an error of a rank (`by_rank`).
    """
    own = last_error(last_launch(log))
    if own and own.has_cure and own.message == message:
        return message
    found = diagnosis(message, log)
    return "\n".join([message, *(explained(found) if found or by_rank else [])])


def failures(ends: Mapping[str, Mapping[str, Any]], logs: Path) -> dict[str, str]:
    """Return the failure text of each node on which the run failed; empty if it did not fail.

    `logs` is the folder with the logs of the nodes, `NODE.log`.
    """
    by_rank = "rank_failed" in {(end.get("cause") or {}).get("kind") for end in ends.values()}
    shown = {}
    for node, message in culprits(ends).items():
        file = logs / f"{node}.log"
        log = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        shown[node] = told(message, log, by_rank)
    return shown
