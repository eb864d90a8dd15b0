"""The part of each node in distributing the model and data of a run.

The transfer order is planned by `hearth.transfer.chain`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from hearth.config import Run, run_of
from hearth.data.locate import HubDataset, LocalFile, locate
from hearth.transfer.chain import NodeCopies, TransferPlan, givers, no_room, order_of, told

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
        looks: result of the inspection by node; empty for a node that was not inspected.
        choice: result of `choose`.
        offer: result of the source's relay.
        secret: shared by the relays of this call.
    """

    given: Mapping[str, Any]
    addresses: Mapping[str, str]
    shared: str
    direct: float
    looks: Mapping[str, Mapping[str, Any]]
    choice: Mapping[str, Any]
    offer: Mapping[str, Any]
    secret: str | None

    # -- on the controller -------------------------------------------------------------------------

    def choose(self) -> dict[str, Any]:
        """Return the plan (download source, receivers, chain) and the text that explains it."""
        nodes, wanted = self._seen, self._wanted
        if not nodes:
            return {"source": "", "lacks": {}, "alike": {}, "fetches": [], "copy_to": []}
        order = order_of(nodes, wanted)
        source = next(node for node in nodes if node.name == order.source)
        fetches = [key for key, known in wanted.items() if not known and not source.holds[key]]
        if self.shared:
            order = TransferPlan(order.source, {}, {})
        lines = told(order, {key: self._names[key] for key in wanted}, fetches)
        everywhere = list(self.addresses) if not self.shared else []
        copy_to = [order.source] if "data" in wanted else everywhere
        return {
            **asdict(order),
            "fetches": fetches,
            "copy_to": copy_to if self.given["dataset"] else [],
            **({"say": "\n".join(f"  {line}" for line in lines)} if lines else {}),
        }

    def room(self, own: str) -> list[str]:
        """Return findings if a node's disks lack space for its missing things of known size."""
        node = next((node for node in self._seen if node.name == own), None)
        if node is None:
            return []
        lacks, sizes = self.order.lacks.get(own, ()), self.offer.get("facts", {}).get("sizes")
        if sizes is None:
            sizes = self._guessed()
            if own == self.order.source:  # the source first downloads what it lacks
                lacks = [key for key in self._wanted if not node.holds[key]]
                node = replace(node, arrived=node.downloaded)
        return no_room(node, {key: sizes[key] for key in lacks if key in sizes})

    def describe(self) -> str:
        """Describe the location of model and data at the end."""
        here = f"in {self.shared}, which all nodes see"
        place = here if self.shared else f"whole and the same on {', '.join(self.addresses)}"
        model = place
        if self._run.source.kind == "folder":
            model = "your folder, used where it lies on each node; Hearth does not send it"
        on_hub = isinstance(self._data, HubDataset)
        if on_hub and self.shared:
            data = "each node asks the Hub for it by itself, when it is needed"
        elif self._run.dataset_sha256 or on_hub:
            data = place
        else:
            data = "comes with the training code"
        return f"  {self._names['model']}: {model}\n  {self._names['data']}: {data}"

    # -- on a node ---------------------------------------------------------------------------------

    def exempt(self, verb: str) -> dict[str, Any] | None:
        """Return the result of a node that needs no module for `verb`, else None."""
        if verb in ("look", "prove") and not self._wanted and not self.shared:
            return {"skipped": True}
        if verb == "take" and "digest" not in self.offer.get("facts", {}):
            # The source reports its own findings.
            return {"findings": [f"{self.order.source} does not send what this node lacks"]}
        return None

    def spec(self, verb: str, own: str) -> dict[str, Any]:
        """Return the `spec` of the module `hearth_distribute` for a node's part in `verb`."""
        if verb == "mark":
            return {"shared": self.shared}
        if verb == "fetch":
            return {"keys": self.choice["fetches"]}
        if verb in ("look", "prove"):
            return {"address": self.addresses[own], "shared": self.shared}
        order, sources, digest = self.order, [], ""
        lacked = {key for keys in order.lacks.values() for key in keys}
        keys = [key for key in ("model", "data") if key in lacked]
        if verb == "take":
            sources, digest = givers(order.chain, own), self.offer["facts"]["digest"]
            keys = list(order.lacks[own])
        ends = {
            name: {"address": self.addresses[name], "port": self.looks[name]["facts"]["port"]}
            for name in (own, *sources)
        }
        return {
            **ends[own],
            "call": self.call,
            "digest": digest,
            "allowed": [self.addresses[name] for name in order.chain],
            "givers": [{"name": name, **ends[name]} for name in sources],
            "keys": keys,
        }

    def proof(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node's checksums as facts, and a finding for each thing that is incomplete."""
        holds = answer.get("facts", {}).get("holds", {})
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
    def _data(self) -> LocalFile | HubDataset:
        return locate(self._run.settings.dataset)

    @property
    def _names(self) -> dict[str, str]:
        """Names of model and data for messages."""
        data = self._data
        named = data.path.name if isinstance(data, LocalFile) else data.name
        return {"model": self._run.source.name, "data": named}

    @property
    def _seen(self) -> list[NodeCopies]:
        """The files present on each inspected node."""
        return [
            NodeCopies.of(name, look["facts"])
            for name, look in self.looks.items()
            if look.get("facts") and not look.get("findings")
        ]

    def _guessed(self) -> dict[str, int]:
        """Return the sizes that are known before the download."""
        run, sizes = self.given, {}
        if "model" in self.choice["fetches"] and run["shape"]:
            sizes["model"] = run["shape"]["parameters"] * _BYTES_A_WEIGHT
        if run["dataset"]:
            sizes["data"] = Path(run["dataset"]["source"]).stat().st_size
        return sizes


def wanted_of(run: Run, direct: float, shared: str = "") -> dict[str, str]:
    """Return the things to relay from node to node, with checksums if known: see `order_of`.

    Data files below `direct` bytes are left out: the controller sends them to each node faster than
    the nodes could set up the relay. A folder that is `shared` has the data, too.
    """
    wanted = {"model": ""} if run.source.kind == "hub" else {}
    if shared:
        return wanted
    if not run.dataset_sha256 and isinstance(locate(run.settings.dataset), HubDataset):
        wanted["data"] = ""
    elif run.dataset_sha256 and Path(run.settings.dataset).stat().st_size > direct:
        wanted["data"] = run.dataset_sha256[:16]
    return wanted
