"""Plan the distribution of a run's model and data: each node's files, and its part in the transfer.

The transfer order is planned by `hearth.transfer.chain`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hearth.config import Run
from hearth.data.locate import HubDataset, LocalFile, LocalFiles, ShardFiles, locate
from hearth.transfer.chain import (
    NodeCopies,
    NodePart,
    TransferPlan,
    describe_transfer,
    givers,
    no_room,
    order_of,
)

_BYTES_A_WEIGHT = 2
"""As in most published models; the exact size is known after the download."""

DIRECT = 32e6
"""Bytes: the controller sends smaller data files to each node, and larger ones to one node."""


@dataclass(frozen=True)
class DataFile:
    """A data file that a node lacks.

    `source` is its path on the controller, `place` that on the node, '' if that is not known, and
    `shared` that in a folder that all nodes see.
    """

    source: str
    place: str = ""
    shared: str = ""


@dataclass(frozen=True)
class Transfer:
    """The plan of a distribution.

    Attributes:
        of: the distribution that is planned.
        order: the node that downloads and sends, and the chain behind it.
        fetches: keys (`model`, `data`) that are to be downloaded.
        copies: by node the data files that the controller sends.
        links: by node the data files that it takes from the folder that all nodes see.
        shares: the data files that the controller sends there, once.
        found: by node, findings about its disks.
        lines: the plan in words.
    """

    of: Distribution
    order: TransferPlan
    fetches: Sequence[str] = ()
    copies: Mapping[str, list[DataFile]] = field(default_factory=dict)
    links: Mapping[str, list[DataFile]] = field(default_factory=dict)
    shares: Sequence[DataFile] = ()
    found: Mapping[str, list[str]] = field(default_factory=dict)
    lines: Sequence[str] = ()

    @property
    def brings(self) -> bool:
        """Whether anything is to be brought to a node."""
        return bool(self.order.lacks or self.fetches or self.copies or self.links)


@dataclass(frozen=True)
class Distribution:
    """The distribution of a run's model and data.

    Attributes:
        files: its data files on the controller, `source` and name on a node (`staged`).
        addresses: cluster addresses by node, in order of rank.
        copies: the `copies` of each inspected node, see `hearth.transfer.own_copies`.
        shared: a folder that all nodes see, or ''.
        parameters: of the model, 0 if they are not known.
        parts: the stages of a pipeline by node, once they are placed.
        adapters: files like `files` that the controller sends to every node, whatever their size.
    """

    run: Run
    files: Sequence[Mapping[str, str]]
    addresses: Mapping[str, str]
    copies: Mapping[str, Mapping[str, Any]]
    shared: str = ""
    parameters: int = 0
    parts: Mapping[str, list[list[int]]] = field(default_factory=dict)
    direct: float = DIRECT
    adapters: Sequence[Mapping[str, str]] = ()

    def plan(self) -> Transfer:
        """Return the plan: download source, receivers, chain.

        It has the findings of nodes whose disks lack space, as far as sizes are known by now.
        """
        nodes, wanted = self._nodes, self._wanted
        if not nodes:
            return Transfer(self, TransferPlan("", {}, {}))
        order = order_of(nodes, wanted, self._parts)
        source = next(node for node in nodes if node.name == order.source)
        fetches = [key for key, known in wanted.items() if not known and not source.holds[key]]
        if self.shared:
            order = TransferPlan(order.source, {}, {})
        takers = [order.source] if "data" in wanted else list(self.addresses)
        lacked = self.lacked(takers)
        transfer = Transfer(
            self,
            order,
            fetches,
            copies={} if self.shared else lacked,
            links=lacked if self.shared else {},
            shares=self._shares(lacked, order.source) if self.shared else (),
            lines=describe_transfer(order, {key: self._names[key] for key in wanted}, fetches),
        )
        return replace(
            transfer, found={node.name: self.room(transfer, node.name) for node in nodes}
        )

    def alone(self) -> Transfer:
        """Return the plan for nodes that need no transfer: one node, or several on one computer."""
        first, *_ = self.addresses
        return Transfer(self, TransferPlan(first, {}, {}), copies=self.lacked(self.addresses))

    def lacked(self, takers: Iterable[str]) -> dict[str, list[DataFile]]:
        """Return by node the files that it lacks, without nodes that lack nothing.

        Only `takers` get the data files.
        """
        takers = {*takers}
        lacked = {
            name: [
                _placed(file, self.copies.get(name, {}))
                for file in (*(self.files if name in takers else ()), *self.adapters)
                if file["staged"] not in self.copies.get(name, {}).get("files", [])
            ]
            for name in self.addresses
        }
        return {name: files for name, files in lacked.items() if files}

    def _shares(self, lacked: Mapping[str, list[DataFile]], source: str) -> list[DataFile]:
        """Return the files of `lacked` with the `place` of each in the shared folder."""
        missing = {file.source for files in lacked.values() for file in files}
        folder = self.copies[source]["shared_data"]
        return [
            DataFile(file["source"], f"{folder}/{file['staged']}")
            for file in (*self.files, *self.adapters)
            if file["source"] in missing
        ]

    def room(
        self, transfer: Transfer, own: str, sizes: Mapping[str, int] | None = None
    ) -> list[str]:
        """Return findings if a node's disks lack space for its missing things.

        `sizes` are those that the source offers, in bytes; without them they are estimated.
        """
        node = next((node for node in self._nodes if node.name == own), None)
        if node is None:
            return []
        lacks: Sequence[str] = transfer.order.lacks.get(own, ())
        if sizes is None:
            sizes = self._estimated_sizes(transfer)
            if own == transfer.order.source:  # the source first downloads what it lacks
                lacks = [key for key in self._wanted if not node.holds[key]]
                node = replace(node, arrived=node.downloaded)
        needed = {key: sizes[key] for key in lacks if key in sizes}
        if own in self._parts and own != transfer.order.source and "model" in needed:
            needed["model"] = round(needed["model"] * self._parts[own].share())
        return no_room(node, needed)

    def describe(self) -> str:
        """Describe the location of model and data at the end."""
        place = f"whole and the same on {', '.join(self.addresses)}"
        if self.shared:
            place = f"in {self.shared}, which all nodes see"
        model = place
        if self.run.source.kind == "folder":
            model = "your folder, used in place on each node; Hearth does not send it"
        checksums = self.run.data_checksums
        lines = [f"{self._names['model']}: {model}"]
        for name, sha256 in checksums.items():
            found = locate(name)
            on_hub = isinstance(found, HubDataset)
            if self.run.settings.streaming:
                data = "each node reads it from the Hub while it trains"
            elif on_hub and (self.shared or len(checksums) > 1):
                data = "each node asks the Hub for it by itself, when it is needed"
            else:
                data = place if sha256 or on_hub else "comes with the training code"
            lines.append(f"{_name_of(found)}: {data}")
        return "\n".join(f"  {line}" for line in lines)

    def relay_spec(self, transfer: Transfer, own: str, call: str, digest: str) -> dict[str, Any]:
        """Return the spec of a node that receives (`hearth.transfer take`) and relays.

        `call` identifies the relays of this transfer; without the `digest` of the source's offer it
        is the source's own spec (`hearth.transfer offer`).
        """
        order, sources = transfer.order, []
        lacked = {key for keys in order.lacks.values() for key in keys}
        keys = [key for key in ("model", "data") if key in lacked]
        own_part: dict[str, Any] = {}
        if digest:
            sources, keys = givers(order.chain, own), list(order.lacks[own])
            if own in self._parts:  # the nodes between have other layers
                sources, own_part = [order.source], asdict(self._parts[own])
        endpoints = {
            name: {"address": self.addresses[name], "port": self.copies[name]["port"]}
            for name in (own, *sources)
        }
        return {
            **endpoints[own],
            "call": call,
            "digest": digest,
            "allowed": [self.addresses[name] for name in order.chain],
            "givers": [{"name": name, **endpoints[name]} for name in sources],
            "keys": keys,
            **own_part,
        }

    def missing(self, holds: Mapping[str, str]) -> list[str]:
        """Return a finding for each incomplete copy of a node."""
        incomplete = [key for key in self._wanted if holds and not holds[key]]
        return [f"the {key} is not here whole" for key in incomplete]

    @cached_property
    def _wanted(self) -> dict[str, str]:
        return wanted_of(self.run, self.direct, self.shared)

    @cached_property
    def _parts(self) -> dict[str, NodePart]:
        """The layers of each node of a pipeline that the controller has placed."""
        count = max((stop for layers in self.parts.values() for _, stop in layers), default=0)
        return {name: NodePart(layers, count) for name, layers in self.parts.items()}

    @property
    def _names(self) -> dict[str, str]:
        """Names of model and data for messages."""
        data = " + ".join(_name_of(locate(name)) for name in self.run.settings.data_sets)
        return {"model": self.run.source.name, "data": data}

    @cached_property
    def _nodes(self) -> list[NodeCopies]:
        """The files present on each inspected node."""
        return [NodeCopies.of(name, copies) for name, copies in self.copies.items()]

    def _estimated_sizes(self, transfer: Transfer) -> dict[str, int]:
        """Return the sizes that are known before the download."""
        sizes = {}
        if "model" in transfer.fetches and self.parameters and self.run.source.weights:
            sizes["model"] = self.parameters * _BYTES_A_WEIGHT
        if self.files:
            sizes["data"] = sum(Path(file["source"]).stat().st_size for file in self.files)
        return sizes


def _name_of(data: LocalFile | LocalFiles | ShardFiles | HubDataset) -> str:
    """Return the name of a data set in messages."""
    return data.name if isinstance(data, HubDataset) else Path(data.name).name


def wanted_of(run: Run, direct: float, shared: str = "") -> dict[str, str]:
    """Return the things to relay from node to node, with checksums if known: see `order_of`.

    Data files below `direct` bytes are left out: the controller sends them to each node faster than
    the nodes could set up the relay. A folder that is `shared` has the data, too. The files of a
    mixture all come from the controller.
    """
    wanted = {"model": ""} if run.source.kind == "hub" else {}
    dataset = run.settings.dataset
    if shared or run.settings.streaming or not isinstance(dataset, str):
        return wanted
    if not run.dataset_sha256 and isinstance(locate(dataset), HubDataset):
        wanted["data"] = ""
    elif run.dataset_sha256:
        sizes = [s.size for s in run.shards] or [Path(dataset).stat().st_size]
        if sum(sizes) > direct:
            wanted["data"] = run.dataset_sha256[:16]
    return wanted


def _placed(file: Mapping[str, str], copies: Mapping[str, Any]) -> DataFile:
    """Return a data file of a run with its places on the node with these `copies`."""
    places = {"place": copies.get("data"), "shared": copies.get("shared_data")}
    known = {key: f"{folder}/{file['staged']}" for key, folder in places.items() if folder}
    return DataFile(file["source"], **known)
