"""The part of each node in distributing the model and data of a run.

The transfer order is planned by `hearth.transfer.chain`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hearth.config import Run, run_of
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


@dataclass(frozen=True)
class Distribution:
    """The distribution of a run's model and data, with the results of its earlier steps.

    Attributes:
        given: the run as `hearth_controller.launch.request` returns it.
        addresses: cluster addresses by node, in order of rank.
        shared: a folder that all nodes see, or ''.
        direct: size in bytes up to which the controller sends a data file to each node.
        looks: result of the module `hearth_look` by node; empty for a node without one.
        choice: result of `choose`.
        offer: result of the source's relay.
        secret: shared by the relays of this call.
    """

    given: Mapping[str, Any]
    addresses: Mapping[str, str]
    shared: str
    direct: float
    inspections: Mapping[str, Mapping[str, Any]]
    choice: Mapping[str, Any] = field(default_factory=dict)
    offer: Mapping[str, Any] = field(default_factory=dict)
    secret: str | None = None

    # -- on the controller -------------------------------------------------------------------------

    def choose(self) -> dict[str, Any]:
        """Return the plan (download source, receivers, chain) and the text that explains it.

        `found` has the findings of nodes whose disks lack space, as far as sizes are known by now.
        """
        nodes, wanted = self._copies, self._wanted
        if not nodes:
            nothing: dict[str, Any] = {"lacks": {}, "alike": {}, "found": {}}
            nothing |= {"source": "", "fetches": [], "copies": {}, "links": {}}
            return nothing | {"shares": []}
        order = order_of(nodes, wanted, self._parts)
        source = next(node for node in nodes if node.name == order.source)
        fetches = [key for key, known in wanted.items() if not known and not source.holds[key]]
        if self.shared:
            order = TransferPlan(order.source, {}, {})
        lines = describe_transfer(order, {key: self._names[key] for key in wanted}, fetches)
        takers = [order.source] if "data" in wanted else list(self.addresses)
        lacked = lacked_files(self.given, self.inspections, takers)
        plan = {
            **asdict(order),
            "fetches": fetches,
            "copies": {} if self.shared else lacked,
            "links": lacked if self.shared else {},
            "shares": self._shares(lacked, order.source) if self.shared else [],
        }
        planned = replace(self, choice=plan)
        return plan | {
            "found": {node.name: planned.room(node.name) for node in nodes},
            **({"say": "\n".join(f"  {line}" for line in lines)} if lines else {}),
        }

    def _shares(
        self, lacked: Mapping[str, list[dict[str, str]]], source: str
    ) -> list[dict[str, str]]:
        """Return the files of `lacked` with the `place` of each in the shared folder."""
        missing = {file["source"] for files in lacked.values() for file in files}
        folder = self.inspections[source]["facts"]["copies"]["shared_data"]
        return [
            {"source": file["source"], "place": f"{folder}/{file['staged']}", "folder": folder}
            for file in self.given["files"]
            if file["source"] in missing
        ]

    def room(self, own: str) -> list[str]:
        """Return findings if a node's disks lack space for its missing things of known size."""
        node = next((node for node in self._copies if node.name == own), None)
        if node is None:
            return []
        lacks, sizes = self.order.lacks.get(own, ()), self.offer.get("facts", {}).get("sizes")
        if sizes is None:
            sizes = self._estimated_sizes()
            if own == self.order.source:  # the source first downloads what it lacks
                lacks = [key for key in self._wanted if not node.holds[key]]
                node = replace(node, arrived=node.downloaded)
        sizes = {key: sizes[key] for key in lacks if key in sizes}
        if own in self._parts and own != self.order.source and "model" in sizes:
            sizes["model"] = round(sizes["model"] * self._parts[own].share())
        return no_room(node, sizes)

    def describe(self) -> str:
        """Describe the location of model and data at the end."""
        here = f"in {self.shared}, which all nodes see"
        place = here if self.shared else f"whole and the same on {', '.join(self.addresses)}"
        model = place
        if self._run.source.kind == "folder":
            model = "your folder, used where it lies on each node; Hearth does not send it"
        checksums = self._run.data_checksums
        lines = [f"{self._names['model']}: {model}"]
        for name, sha256 in checksums.items():
            found = locate(name)
            on_hub = isinstance(found, HubDataset)
            if self._run.settings.streaming:
                data = "each node reads it from the Hub while it trains"
            elif on_hub and (self.shared or len(checksums) > 1):
                data = "each node asks the Hub for it by itself, when it is needed"
            else:
                data = place if sha256 or on_hub else "comes with the training code"
            lines.append(f"{_name_of(found)}: {data}")
        return "\n".join(f"  {line}" for line in lines)

    # -- on a node ---------------------------------------------------------------------------------

    def spec(self, verb: str, own: str) -> dict[str, Any]:
        """Return the spec of the command `hearth.transfer VERB` on a node."""
        if verb == "fetch":
            return {"keys": self.choice["fetches"]}
        order, sources, digest = self.order, [], ""
        lacked = {key for keys in order.lacks.values() for key in keys}
        keys = [key for key in ("model", "data") if key in lacked]
        if verb == "take":
            sources, digest = givers(order.chain, own), self.offer["facts"]["digest"]
            keys = list(order.lacks[own])
            if own in self._parts:  # the nodes between have other layers
                sources = [order.source]
        ports = {
            name: self.inspections[name]["facts"]["copies"]["port"] for name in (own, *sources)
        }
        endpoints = {
            name: {"address": self.addresses[name], "port": port} for name, port in ports.items()
        }
        return {
            **endpoints[own],
            "call": self.call,
            "digest": digest,
            "allowed": [self.addresses[name] for name in order.chain],
            "givers": [{"name": name, **endpoints[name]} for name in sources],
            "keys": keys,
            **(asdict(self._parts[own]) if verb == "take" and own in self._parts else {}),
        }

    def proof(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node's checksums as facts, and a finding for each thing that is incomplete."""
        holds = answer.get("facts", {}).get("copies", {}).get("holds", {})
        missing = [
            f"the {key} is not here whole" for key in self._wanted if holds and not holds[key]
        ]
        facts = {key: value for key, value in holds.items() if value}
        return {"facts": facts, "findings": [*answer.get("findings", []), *missing]}

    @property
    def order(self) -> TransferPlan:
        """The order that `choose` has planned."""
        lacks = {name: tuple(keys) for name, keys in self.choice["lacks"].items()}
        return TransferPlan(self.choice["source"], lacks, self.choice["alike"])

    @property
    def call(self) -> str:
        """An id of this call, derived from the secret without revealing it."""
        return hashlib.sha256(f"call {self.secret}".encode()).hexdigest()[:16]

    # -- known of run and nodes --------------------------------------------------------------------

    @cached_property
    def _run(self) -> Run:
        return run_of(self.given["file"], "the run")

    @cached_property
    def _wanted(self) -> dict[str, str]:
        return wanted_of(self._run, self.direct, self.shared)

    @property
    def _parts(self) -> dict[str, NodePart]:
        """The layers of each node of a pipeline that the controller has placed."""
        parts = self.given.get("parts") or {}
        count = max((stop for layers in parts.values() for _, stop in layers), default=0)
        return {name: NodePart(layers, count) for name, layers in parts.items()}

    @property
    def _names(self) -> dict[str, str]:
        """Names of model and data for messages."""
        data = " + ".join(_name_of(locate(name)) for name in self._run.settings.data_sets)
        return {"model": self._run.source.name, "data": data}

    @property
    def _copies(self) -> list[NodeCopies]:
        """The files present on each inspected node."""
        return [
            NodeCopies.of(name, inspection["facts"]["copies"])
            for name, inspection in self.inspections.items()
            if inspection.get("facts", {}).get("copies") and not inspection.get("findings")
        ]

    def _estimated_sizes(self) -> dict[str, int]:
        """Return the sizes that are known before the download."""
        run, sizes = self.given, {}
        if "model" in self.choice["fetches"] and run["shape"] and self._run.source.weights:
            sizes["model"] = run["shape"]["parameters"] * _BYTES_A_WEIGHT
        if run["files"]:
            sizes["data"] = sum(Path(file["source"]).stat().st_size for file in run["files"])
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


def lacked_files(
    run: Mapping[str, Any], inspections: Mapping[str, Mapping[str, Any]], nodes: Iterable[str]
) -> dict[str, list[dict[str, str]]]:
    """Return by node each data file of the run that it lacks.

    A file has its `source` on the controller, its `place` on the node and, if all nodes share a
    folder, its place there (`shared`); a node that has not told its folders has neither. `run` and
    `inspections` are as in `Distribution`; nodes that lack nothing are left out.
    """
    copies = {
        name: inspections.get(name, {}).get("facts", {}).get("copies") or {} for name in nodes
    }
    lacked = {
        name: [
            _placed(file, its)
            for file in run["files"]
            if file["staged"] not in its.get("files", [])
        ]
        for name, its in copies.items()
    }
    return {name: files for name, files in lacked.items() if files}


def _placed(file: Mapping[str, str], copies: Mapping[str, Any]) -> dict[str, str]:
    """Return the source of a data file of a run, and its places on the node with these `copies`."""
    places = {"place": copies.get("data"), "shared": copies.get("shared_data")}
    return {
        "source": file["source"],
        **{key: f"{folder}/{file['staged']}" for key, folder in places.items() if folder},
    }
