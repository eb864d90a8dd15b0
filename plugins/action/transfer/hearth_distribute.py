"""Action plugin: run each node's part in distributing model and data, and show the progress.

The transfer is planned by `hearth.transfer.chain`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth.base.text import byte_count, duration
from hearth.config import Run, run_of
from hearth.data.locate import HubDataset, LocalFile, locate
from hearth.transfer.chain import NodeCopies, TransferPlan, givers, no_room, order_of, told
from hearth_controller.base.paths import for_shell
from hearth_controller.base.screen import Screen

DOCUMENTATION = r"""
module: hearth_distribute
short_description: Bring model and data of a run to all nodes
options:
  verb:
    description:
      - V(look), V(mark), V(fetch), V(offer) and V(take) do that on a node, see the module. V(take)
        also waits until everything is there, and shows how far it is.
      - V(choose) says who downloads and who sends to whom. Meant to run once, as is V(offer).
      - V(room) says whether a node has room for what it lacks.
      - V(prove) looks once more whether everything is there; V(show) says how it stands in the end,
        and is meant to run once.
      - The results are expected as C(distribute_look), C(distribute_choice) and
        C(distribute_offer).
    type: str
    required: true
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
  nodes:
    description: The nodes with C(name) and C(address), in order of rank.
    type: list
    elements: dict
    required: true
  workspace:
    description: The workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
  models:
    description: Model cache of the node; empty is C(models/) in the workspace.
    type: str
    default: ""
  shared:
    description: A folder that all nodes see; then nothing is sent.
    type: str
    default: ""
  direct_mb:
    description: Data files up to so many MB come from the controller to every node.
    type: float
    default: 32
  secret:
    description: What the nodes of this call prove themselves with to each other.
    type: str
  hub_token:
    description: Token for gated models.
    type: str
"""

RETURN = r"""
source:
  description: The node that downloads and sends.
  type: str
  returned: with V(choose)
lacks:
  description: What each node behind it lacks, in the order of the chain.
  type: dict
  returned: with V(choose)
alike:
  description: The nodes that share another one's disk.
  type: dict
  returned: with V(choose)
fetches:
  description: What has to be downloaded.
  type: list
  returned: with V(choose)
copy_to:
  description: The nodes to which the controller itself brings the data file.
  type: list
  returned: with V(choose)
findings:
  description: What stands in the way on this node.
  type: list
  returned: always
"""

_SILENT = 60.0
"""Seconds without an answer after which a node counts as lost."""

_BYTES_A_WEIGHT = 2
"""As in most published models; the exact size is known after the download."""


def seen_of(names: Iterable[str], known: Mapping[str, Mapping[str, Any]]) -> list[NodeCopies]:
    """Return the files present on each inspected node; `known` are the variables by node."""
    looks = {name: known[name].get("distribute_look", {}) for name in names}
    return [
        NodeCopies.of(name, look["facts"])
        for name, look in looks.items()
        if look.get("facts") and not look.get("findings")
    ]


def wanted_of(run: Run, direct: float) -> dict[str, str]:
    """Return the things to relay from node to node, with checksums if known: see `order_of`.

    Data files below `direct` bytes are left out: the controller sends them to each node faster than
    the nodes could set up the relay.
    """
    wanted = {"model": ""} if run.source.kind == "hub" else {}
    if not run.dataset_sha256 and isinstance(locate(run.settings.dataset), HubDataset):
        wanted["data"] = ""
    elif run.dataset_sha256 and Path(run.settings.dataset).stat().st_size > direct:
        wanted["data"] = run.dataset_sha256[:16]
    return wanted


def progress(record: Mapping[str, Any], whose: str) -> str:
    """Return a node's progress as one line."""
    if record["state"] == "proving":
        return f"{whose}: everything is there; reading it once more"
    done, size = record["here"] + record["sent"], record["size"]
    if not size:
        return f"{whose}: asks {record['giver'] or 'the others'}"
    speed = record["sent"] / max(time.time() - record["began"], 0.1)
    parts = [f"{whose}: {byte_count(done)} of {byte_count(size)}", f"from {record['giver']}"]
    if record["sent"]:
        parts += [f"{byte_count(speed)}/s", f"{duration((size - done) / speed)} left"]
    return " · ".join(parts)


def arrived(record: Mapping[str, Any]) -> str:
    """Return a node's transfer summary: size, sender, speed, and senders that were skipped."""
    seconds = record["ended"] - record["began"]
    text = (
        f"{byte_count(record['sent'])} from {record['giver']} in {duration(seconds)} "
        f"({byte_count(record['sent'] / max(seconds, 0.1))}/s)"
    )
    if record["here"]:
        text += f"; {byte_count(record['here'])} were here already"
    for lost in record["lost"]:
        text += f"; {lost['name']} was passed over: {lost['why']}"
    return text


class ActionModule(ActionBase):
    """Runs its module on a node, or plans on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Run the requested verb and return its result."""
        result = super().run(tmp, task_vars) | {"changed": False, "findings": []}
        string = {"type": "str", "required": True}
        verbs = {
            "look": self._look,
            "mark": self._mark,
            "choose": self._choose,
            "room": self._room,
            "fetch": self._fetch,
            "offer": self._offer,
            "take": self._take,
            "prove": self._prove,
            "show": self._show,
        }
        _, self._given = self.validate_argument_spec(
            {
                "verb": {"type": "str", "choices": list(verbs), "required": True},
                "run": {"type": "dict", "required": True},
                "nodes": {"type": "list", "elements": "dict", "required": True},
                "workspace": string,
                "python": string,
                "models": {"type": "str", "default": ""},
                "shared": {"type": "str", "default": ""},
                "direct_mb": {"type": "float", "default": 32},
                "secret": {"type": "str", "no_log": True},
                "hub_token": {"type": "str", "no_log": True},
            }
        )
        self._vars, self._known = task_vars, task_vars["hostvars"]
        self._own = str(task_vars["inventory_hostname"])
        self._addresses = {str(node["name"]): str(node["address"]) for node in self._given["nodes"]}
        return result | verbs[self._given["verb"]]()

    # -- on a node ---------------------------------------------------------------------------------

    def _module(self, spec: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Call the module of the same name."""
        given = self._given
        arguments = {
            "verb": "look" if given["verb"] == "prove" else given["verb"],
            "run_file": given["run"]["file"],
            "node": self._own,
            "workspace": given["workspace"],
            "python": given["python"],
            "models": given["models"] or None,
            "spec": dict(spec),
            **more,
        }
        return self._execute_module(
            "hearth_distribute",
            {name: value for name, value in arguments.items() if value is not None},
            task_vars=self._vars,
        )

    def _look(self) -> dict[str, Any]:
        if not self._wanted and not self._given["shared"]:
            return {"skipped": True}
        spec = {"address": self._addresses[self._own], "shared": self._given["shared"]}
        return self._module(spec)

    def _prove(self) -> dict[str, Any]:
        """Return checksums as facts, and a finding for each thing that is incomplete here."""
        answer = self._look()
        holds = answer.get("facts", {}).get("holds", {})
        missing = [
            f"the {key} is not here whole" for key in self._wanted if holds and not holds[key]
        ]
        facts = {key: value for key, value in holds.items() if value}
        return answer | {"facts": facts, "findings": [*answer.get("findings", []), *missing]}

    def _mark(self) -> dict[str, Any]:
        return self._module({"shared": self._given["shared"]})

    def _fetch(self) -> dict[str, Any]:
        keys = self._vars["distribute_choice"]["fetches"]
        return self._module({"keys": keys}, hub_token=self._given["hub_token"])

    def _offer(self) -> dict[str, Any]:
        return self._begin(givers=(), digest="", keys=self._sent())

    def _take(self) -> dict[str, Any]:
        order = self._order()
        offer = self._known[order.source].get("distribute_offer", {}).get("facts", {})
        if "digest" not in offer:  # the source reports its own findings
            return {"findings": [f"{order.source} does not send what this node lacks"]}
        chosen = givers(order.chain, self._own)
        answer = self._begin(chosen, offer["digest"], order.lacks[self._own])
        if answer.get("failed") or answer.get("findings"):
            return answer
        return self._followed(int(answer["pid"]), order.chain)

    def _begin(self, givers: Sequence[str], digest: str, keys: Sequence[str]) -> dict[str, Any]:
        """Start this node's relay."""
        chain, secret = self._order().chain, self._given["secret"]
        spec = {
            "call": self._call,
            "address": self._addresses[self._own],
            "port": self._port(self._own),
            "digest": digest,
            "allowed": [self._addresses[name] for name in chain],
            "givers": [
                {"name": name, "address": self._addresses[name], "port": self._port(name)}
                for name in givers
            ],
            "keys": list(keys),
        }
        return self._module(spec, secret=secret)

    @property
    def _call(self) -> str:
        """An id of this call, derived from the secret without revealing it."""
        return hashlib.sha256(f"call {self._given['secret']}".encode()).hexdigest()[:16]

    def _port(self, name: str) -> int:
        return int(self._known[name]["distribute_look"]["facts"]["port"])

    def _followed(self, pid: int, chain: Sequence[str]) -> dict[str, Any]:
        """Wait until everything is on this node; the last node of the chain shows the progress."""
        draws = chain[-1] == self._own
        whose = f"{self._own}, the last of {len(chain)}" if len(chain) > 2 else self._own
        screen, answered = Screen(self._display), time.monotonic()
        while True:
            try:
                record, alive = self._record(pid)
            except AnsibleConnectionFailure:
                if time.monotonic() - answered > _SILENT:
                    raise
                time.sleep(1)
                continue
            answered = time.monotonic()
            if record.get("state") in ("done", "failed") or not alive:
                break
            if draws and record:
                tenth = (record["here"] + record["sent"]) * 10 // max(record["size"], 1)
                screen.progress(progress(record, whose), tenth)
            time.sleep(1)
        if draws:
            screen.end()
        if record.get("state") == "done":
            facts = {name: record[name] for name in ("sent", "here", "began", "ended")}
            return {"changed": True, "note": arrived(record), "facts": facts}
        log = f"{self._given['workspace']}/logs/transfer.log"
        unsaid = f"what takes model and data has ended without a word: was it killed? See {log}"
        return {"findings": record.get("findings") or [unsaid], "facts": {}}

    def _record(self, pid: int) -> tuple[dict[str, Any], bool]:
        """Return the record of this node's relay, and whether its process lives."""
        file = for_shell(f"{self._given['workspace']}/config/transfer.json")
        alive = f"if kill -0 {pid} 2>/dev/null; then echo alive; else echo gone; fi"
        answer = self._low_level_execute_command(
            f"{alive}; cat {file} 2>/dev/null || true", sudoable=False
        )
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        lives, _, text = answer["stdout"].strip().partition("\n")
        record = json.loads(text) if text.strip() else {}
        return (record if record.get("call") == self._call else {}), lives.strip() == "alive"

    # -- on the controller -------------------------------------------------------------------------

    @property
    def _wanted(self) -> dict[str, str]:
        wanted = wanted_of(self._run, self._given["direct_mb"] * 1e6)
        if self._given["shared"]:
            wanted.pop("data", None)  # the shared folder has the data, too
        return wanted

    @property
    def _run(self) -> Run:
        return run_of(self._given["run"]["file"], "the run")

    def _choose(self) -> dict[str, Any]:
        """Return the plan (download source, receivers, chain) and the text that explains it."""
        nodes, wanted = seen_of(self._addresses, self._known), self._wanted
        if not nodes:
            return {"source": "", "lacks": {}, "alike": {}, "fetches": [], "copy_to": []}
        order = order_of(nodes, wanted)
        source = next(node for node in nodes if node.name == order.source)
        fetches = [key for key, known in wanted.items() if not known and not source.holds[key]]
        if self._given["shared"]:
            order = TransferPlan(order.source, {}, {})
        lines = told(order, {key: self._names[key] for key in wanted}, fetches)
        has_file = bool(self._given["run"]["dataset"])
        everywhere = list(self._addresses) if not self._given["shared"] else []
        copy_to = [order.source] if "data" in wanted else everywhere
        return {
            **asdict(order),
            "fetches": fetches,
            "copy_to": copy_to if has_file else [],
            **({"say": "\n".join(f"  {line}" for line in lines)} if lines else {}),
        }

    @property
    def _names(self) -> dict[str, str]:
        """Names of model and data for messages."""
        data = locate(self._run.settings.dataset)
        file = isinstance(data, LocalFile)
        return {"model": self._run.source.name, "data": data.path.name if file else data.name}

    def _order(self) -> TransferPlan:
        """Return the order that `choose` has planned."""
        chosen = self._vars["distribute_choice"]
        lacks = {name: tuple(keys) for name, keys in chosen["lacks"].items()}
        return TransferPlan(chosen["source"], lacks, chosen["alike"])

    def _sent(self) -> list[str]:
        """Return the keys of the things that any node lacks."""
        lacks = self._order().lacks.values()
        return [key for key in ("model", "data") if any(key in keys for keys in lacks)]

    def _room(self) -> dict[str, Any]:
        """Return findings if this node's disks lack space for its missing things of known size."""
        order, nodes = self._order(), seen_of([self._own], self._known)
        lacks = list(order.lacks.get(self._own, ()))
        offer = self._known[order.source].get("distribute_offer", {}) if order.source else {}
        sizes = offer.get("facts", {}).get("sizes")
        if sizes is None:
            sizes = self._guessed()
            if nodes and self._own == order.source:  # the source first downloads what it lacks
                lacks = [key for key in self._wanted if not nodes[0].holds[key]]
                nodes = [replace(nodes[0], arrived=nodes[0].downloaded)]
        sizes = {key: sizes[key] for key in lacks if key in sizes}
        return {"findings": no_room(nodes[0], sizes) if nodes else []}

    def _guessed(self) -> dict[str, int]:
        """Return the sizes that are known before the download."""
        run, sizes = self._given["run"], {}
        if "model" in self._vars["distribute_choice"]["fetches"] and run["shape"]:
            sizes["model"] = run["shape"]["parameters"] * _BYTES_A_WEIGHT
        if run["dataset"]:
            sizes["data"] = Path(run["dataset"]["source"]).stat().st_size
        return sizes

    def _show(self) -> dict[str, Any]:
        """Return a text about the location of model and data."""
        run, shared = self._run, self._given["shared"]
        everywhere = f"whole and the same on {', '.join(self._addresses)}"
        if run.source.kind == "folder":
            model = "your folder, used where it lies on each node; Hearth does not send it"
        else:
            model = f"in {shared}, which all nodes see" if shared else everywhere
        data = locate(run.settings.dataset)
        if isinstance(data, HubDataset) and shared:
            said = "each node asks the Hub for it by itself, when it is needed"
        elif run.dataset_sha256 and shared:
            said = f"in {shared}, which all nodes see"
        elif run.dataset_sha256 or isinstance(data, HubDataset):
            said = everywhere
        else:
            said = "comes with the training code"
        names = self._names
        return {"say": f"  {names['model']}: {model}\n  {names['data']}: {said}"}
