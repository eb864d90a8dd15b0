"""The outcome of a run over all its nodes: its record here, and the files to bring from each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hearth.base.files import write_whole
from hearth.diagnose.catalogue import explanation
from hearth.supervisor.cause import generation_of, telling

FILE = "ends.json"
"""The record's name in the run's folder on the controller."""

_RECORDED = ("state", "cause", "message", "rank", "generation", "launches", "nodes")
_NOT_QUERIED = {
    "state": "lost",
    "message": "not asked, since it is not among the nodes of this command",
}
_RECORD = ("run.yml", "metrics.jsonl")
_RESULTS = ("adapter", "model", "best")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run's last launch on each node, in order of rank.

    It is as recorded by the node or observed by the controller. `hearth` is the command for
    the same inventory, `electricity_price` that of a kWh (0: not known).
    """

    by_node: Mapping[str, Mapping[str, Any]]
    hearth: str = "hearth"
    electricity_price: float = 0.0

    @classmethod
    def from_answers(
        cls,
        answers: Iterable[Mapping[str, Any]],
        hearth: str = "hearth",
        electricity_price: float = 0.0,
    ) -> Outcome:
        """Merge the nodes' answers, each with the `node` and the outcome there (`hearth_follow`).

        A node of the run may have left the inventory or not be part of this command; the others
        know how the run ended.
        """
        found = {answer["node"]: answer for answer in answers}
        launched = [answer for answer in found.values() if answer.get("nodes")]
        newest = max(launched, key=generation_of, default={})
        nodes = newest.get("nodes") or found
        ends = {node: found.get(node, _NOT_QUERIED) for node in nodes}
        return cls(ends, hearth, electricity_price)

    def write(self, folder: Path) -> None:
        """Write the record to the run's folder."""
        outcomes = {
            node: {name: end[name] for name in _RECORDED if name in end}
            for node, end in self.by_node.items()
        }
        content = {
            "hearth": self.hearth,
            "electricity_price": self.electricity_price,
            "ends": outcomes,
        }
        write_whole(folder / FILE, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Outcome | None:
        """Read the record from the run's folder, or return None if it is missing or incomplete."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            outcomes = {node: dict(end) for node, end in content["ends"].items()}
            return cls(
                outcomes,
                content.get("hearth", "hearth"),
                float(content.get("electricity_price", 0)),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @property
    def known(self) -> bool:
        """Whether any node knows of the run."""
        return any(end["state"] != "unknown" for end in self.by_node.values())

    @property
    def script(self) -> str:
        """Name of the person's script that ran, '' for Hearth's trainer."""
        return next((end["script"] for end in self.by_node.values() if end.get("script")), "")

    @cached_property
    def state(self) -> str:
        """The final state of the run, according to the nodes that know it.

        If none knows, the run failed if a supervisor is gone for good; otherwise it is `lost`: no
        node answers, and it may still be active.
        """
        known = {str(end["state"]) for end in telling(self.by_node).values()}
        if not known:
            gone = any(end.get("gone") for end in self.by_node.values())
            return "failed" if gone else "lost"
        if "failed" in known:
            return "failed"
        return "finished" if known == {"finished"} else "stopped"

    @property
    def launches(self) -> list[Mapping[str, Any]]:
        """The groups and launches that ended before the run did, on the node that saw the most."""
        return max(
            (end.get("launches") or [] for end in self.by_node.values()), key=len, default=[]
        )

    @property
    def culprits(self) -> dict[str, str]:
        """The message of each node where the run failed or was lost; {} for any other state.

        The supervisors record one cause on all nodes: the first real failure. For a node without a
        record of its end, the records of its peers count, and its own message only if they have
        none.
        """
        if self.state not in ("failed", "lost"):
            return {}
        found: dict[str, str] = {}
        for end in telling(self.by_node).values():
            cause = end.get("cause") or {}
            if end["state"] == "failed" and cause.get("node") in self.by_node:
                found.setdefault(cause["node"], str(cause["message"]))
        return found or {
            node: _message(end) or "ended without saying why"
            for node, end in self.by_node.items()
            if end.get("state") not in ("finished", "stopped")
        }

    @property
    def silent(self) -> dict[str, str]:
        """Why nodes do not report the end of a run that the others completed."""
        if self.state in ("failed", "lost"):
            return {}
        reported = telling(self.by_node)
        return {
            node: _message(end) or "its end is not known"
            for node, end in self.by_node.items()
            if node not in reported
        }

    def failures(self, logs: Path) -> dict[str, str]:
        """Return the failure text of each node where the run failed; empty if it did not fail.

        `logs` is the folder with the logs of the nodes, `NODE.log`.
        """
        kinds = {(end.get("cause") or {}).get("kind") for end in self.by_node.values()}
        texts = {}
        for node, message in self.culprits.items():
            file = logs / f"{node}.log"
            log = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            texts[node] = with_diagnosis(message, log, "rank_failed" in kinds)
        return texts

    @cached_property
    def unanswered(self) -> list[str]:
        """The nodes of the run that did not answer or were not asked."""
        return [
            node
            for node, end in self.by_node.items()
            if end["state"] == "lost" and not end.get("gone")
        ]

    @property
    def source(self) -> str:
        """The node whose record is that of the run, '' if none answers.

        Of those that answer it is the one whose metrics reach furthest, or the first of several.
        """
        there = [
            node
            for node, end in self.by_node.items()
            if end.get("rank") is not None and node not in self.unanswered
        ]
        return max(there, key=lambda node: _progress(self.by_node[node]), default="")

    def files(self, node: str, run: str) -> dict[str, str]:
        """Return the files to bring from a node: path in its workspace by path in the run's folder.

        Every node has a log, and the files of a script; `source` has the record and the results.
        Without the others' word its results are the run's only if it has the end on record.
        """
        if self.by_node.get(node, {}).get("rank") is None:
            return {}
        results = f"results/{run}"
        names: tuple[str, ...] = ()
        if node == self.source:
            _, _, ended = _progress(self.by_node[node])
            names = _RECORD + (_RESULTS if ended or not self.unanswered else ())
        record = {name: f"{results}/{name}" for name in names}
        if self.by_node[node].get("job") is not None:
            record[f"logs/{node}.job.log"] = f"{results}/job.log"
        # A script's files come last: it may still be changing them.
        return {
            f"logs/{node}.log": f"logs/{run}.log",
            **record,
            f"files/{node}": f"{results}/files",
        }

    def copies(self, node: str) -> tuple[str, ...]:
        """Return the files of a node that may reach less far than those brought before.

        Those are the record of a run whose nodes do not all answer.
        """
        return _RECORD if node == self.source and self.unanswered else ()


def with_diagnosis(message: str, log: str, by_rank: bool) -> str:
    """Return the text for a failure: the original error, its cause and its fix.

    `log` is the node's. Hearth's own errors already say what to do and stay unchanged. An unknown
    cause is mentioned only for an error of a rank (`by_rank`).
    """
    return "\n".join([message, *explanation(message, log, by_rank)])


def _progress(end: Mapping[str, Any]) -> tuple[int, int, bool]:
    """Return the progress on record on a node, to be compared."""
    reached = end.get("reached") or {}
    return reached.get("generation", -1), reached.get("step", -1), reached.get("ended", False)


def _message(end: Mapping[str, Any]) -> str:
    """Return the message of a node's cause or, without one, of the node itself; '' for neither."""
    return str((end.get("cause") or {}).get("message") or end.get("message") or "")
