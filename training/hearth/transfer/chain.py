"""Plan the transfer: source, receivers, chain order, disk space. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hearth.base.text import byte_count

SPARE = 256 << 20
"""Bytes to leave free on the disk for other files."""


@dataclass(frozen=True)
class NodeCopies:
    """A node's copies and disks, see `hearth.transfer.own_copies`; dicts by `model` and `data`.

    Attributes:
        name: of the node.
        holds: checksum of each complete copy, "" where there is none.
        pieces: of a partly held model: its checksum, and the `pieces` held (see
            `hearth.model.weight_files`).
        folders: its path, existing or planned.
        places: identifier of that location, equal on nodes that share it.
        disks: the file system of that location.
        free: free bytes on that file system.
        arrived: bytes of it already received by an earlier call.
        downloaded: bytes of it already downloaded by an interrupted download.
        mbit: link speed negotiated by its network card, None if unknown.
        wireless: whether that card is Wi-Fi.
    """

    name: str
    holds: Mapping[str, str] = field(default_factory=dict)
    pieces: Mapping[str, Any] = field(default_factory=dict)
    folders: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    disks: Mapping[str, str] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    downloaded: Mapping[str, int] = field(default_factory=dict)
    mbit: int | None = None
    wireless: bool = False

    @classmethod
    def of(cls, name: str, facts: Mapping[str, Any]) -> NodeCopies:
        """Build a node from the facts of an inspection."""
        return cls(name, **{each.name: facts[each.name] for each in fields(cls)[1:]})


@dataclass(frozen=True)
class TransferPlan:
    """The sender and the keys each other node lacks, in chain order behind the sender.

    `alike` maps a node to the one before it that shares its disk, and so its files.
    """

    source: str
    lacks: Mapping[str, tuple[str, ...]]
    alike: Mapping[str, str]

    @property
    def chain(self) -> list[str]:
        """The sender, then the receivers, each fetching from the one before."""
        return [self.source, *self.lacks]


@dataclass(frozen=True)
class NodePart:
    """The layers of a divided model on one node: the range of each of its ranks."""

    layers: Sequence[Sequence[int]]
    count: int

    def is_held(self, node: NodeCopies, model: str) -> bool:
        """Return whether `node` has the weights of its layers of this `model`, a checksum."""
        if not model or node.pieces.get("model") != model:
            return False
        needed = {number for start, stop in self.layers for number in range(start, stop)}
        needed |= {-1 for start, _ in self.layers if start == 0}
        needed |= {self.count for _, stop in self.layers if stop == self.count}
        return needed <= set(node.pieces["pieces"])

    def share(self) -> float:
        """Return the node's part of the model's size; embeddings and head count as a layer each."""
        own = sum(stop - start for start, stop in self.layers)
        return min(1.0, (own + 2) / (self.count + 2))


def order_of(
    nodes: Sequence[NodeCopies],
    wanted: Mapping[str, str],
    parts: Mapping[str, NodePart] | None = None,
) -> TransferPlan:
    """Return the transfer order for `nodes`, which are given by rank.

    `parts` are those of a divided model, by node.

    `wanted` maps each item that all nodes are to have to its required checksum, "" if not known
    beforehand: then the sender's copy, present or to be downloaded, is the reference.
    The sender is the first node that has the items that would have to be downloaded, above all
    the model; else the first node.
    """
    unknown = [key for key, known in wanted.items() if not known]
    source = max(nodes, key=lambda node: [bool(node.holds.get(key)) for key in unknown])
    target = {key: known or source.holds.get(key, "") for key, known in wanted.items()}
    lacks: dict[str, tuple[str, ...]] = {}
    alike: dict[str, str] = {}
    served = {source.places[key]: source.name for key in wanted}
    others = [node for node in nodes if node is not source]

    def has(node: NodeCopies, key: str) -> bool:
        if target[key] and node.holds[key] == target[key]:
            return True
        part = (parts or {}).get(node.name)
        return key == "model" and part is not None and part.is_held(node, target[key])

    # Slow links last: a chain is as slow as the links before.
    for node in sorted(others, key=lambda node: (node.wireless, -(node.mbit or 0))):
        for key in wanted:
            if node.places[key] in served:
                alike[node.name] = served[node.places[key]]
        needs = tuple(
            key for key in wanted if node.places[key] not in served and not has(node, key)
        )
        if needs:
            lacks[node.name] = needs
        served = {node.places[key]: node.name for key in wanted} | served
    return TransferPlan(source.name, lacks, alike)


def givers(chain: Sequence[str], own: str) -> list[str]:
    """Return the upstream nodes of a node, nearest first; all but the first are fallbacks."""
    return list(reversed(chain[: chain.index(own)]))


def no_room(node: NodeCopies, sizes: Mapping[str, int]) -> list[str]:
    """Return a finding for each disk of a node with too little space for `sizes`, bytes by item."""
    disks: dict[str, list[str]] = {}
    for key in sizes:
        disks.setdefault(node.disks[key], []).append(key)
    findings = []
    for keys in disks.values():
        needed = sum(max(0, sizes[key] - node.arrived[key]) for key in keys) + SPARE
        free = min(node.free[key] for key in keys)
        if free < needed:
            findings.append(
                f"no room for the {' and the '.join(keys)}: {byte_count(needed)} are needed below "
                f"{node.folders[keys[0]]} and {byte_count(free)} are free; free some space "
                "there, or name another folder by hearth_models or hearth_workspace"
            )
    return findings


def describe_transfer(
    order: TransferPlan, names: Mapping[str, str], fetches: Collection[str]
) -> list[str]:
    """Announce the transfer, a line per action; `names` describe the items by key.

    `fetches` are the keys that the sender downloads first.
    """
    lines = [f"{names[key]}: {order.source} downloads it, once" for key in fetches]
    for key, name in names.items():
        takers = [node for node, keys in order.lacks.items() if key in keys]
        if takers:
            lines.append(f"{name}: {' → '.join([order.source, *takers])}")
    for node, other in order.alike.items():
        lines.append(f"{node} shares a disk with {other}: nothing is sent to it")
    return lines
