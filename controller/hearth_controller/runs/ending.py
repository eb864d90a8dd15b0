"""The outcome of a run over all its nodes, and the files to bring from each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hearth.supervise.cause import generation_of

_UNASKED = {
    "state": "lost",
    "message": "not asked, since it is not among the nodes of this command",
}
_RECORD = ("run.yml", "metrics.jsonl")
_RESULTS = ("adapter", "model", "best")


@dataclass(frozen=True)
class Ending:
    """The outcome on each node of the run's last launch, in order of rank."""

    by_node: Mapping[str, Mapping[str, Any]]

    @classmethod
    def from_answers(cls, answers: Iterable[Mapping[str, Any]]) -> Ending:
        """Merge the nodes' answers, each with the `node` and the outcome there (`hearth_follow`).

        A node of the run may have left the inventory or not be part of this command; the others
        know how the run ended.
        """
        found = {answer["node"]: answer for answer in answers}
        launched = [answer for answer in found.values() if answer.get("nodes")]
        newest = max(launched, key=generation_of, default={})
        return cls({node: found.get(node, _UNASKED) for node in newest.get("nodes") or found})

    @property
    def known(self) -> bool:
        """Whether any node knows of the run."""
        return any(end["state"] != "unknown" for end in self.by_node.values())

    @property
    def script(self) -> str:
        """Name of the person's script that ran, '' for Hearth's trainer."""
        return next((end["script"] for end in self.by_node.values() if end.get("script")), "")

    @property
    def stand_in(self) -> str:
        """The node whose copy of the record replaces that of rank 0's node, which is silent, or ''.

        The copy reaches up to the last checkpoint.
        """
        there = {
            end["rank"]: node
            for node, end in self.by_node.items()
            if end.get("rank") is not None and (end["state"] != "lost" or end.get("gone"))
        }
        return "" if 0 in there else next(iter(there.values()), "")

    def files(self, node: str, run: str) -> dict[str, str]:
        """Return the files to bring from a node: path in its workspace, by path in the run's folder.

        Every node has a log, and the files of a script; rank 0's has the record and the results.
        """
        rank = self.by_node.get(node, {}).get("rank")
        if rank is None:
            return {}
        results = f"results/{run}"
        files = {f"logs/{node}.log": f"logs/{run}.log", f"files/{node}": f"{results}/files"}
        return files | {
            name: f"{results}/{name}"
            for name in (*_RECORD, *_RESULTS)
            if rank == 0 or (name in _RECORD and node == self.stand_in)
        }

    def copies(self, node: str) -> tuple[str, ...]:
        """Return the files of a stand-in, which may reach less far than those brought before."""
        return _RECORD if node == self.stand_in else ()
