"""Action plugin: run each node's part in distributing model and data, and show the progress."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth_controller.base.screen import Screen
from hearth_controller.transfer.distribution import Distribution
from hearth_controller.transfer.receive import Receiver

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


class ActionModule(ActionBase):
    """Runs its module on a node, or plans on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Run the requested verb and return its result."""
        result = super().run(tmp, task_vars) | {"changed": False, "findings": []}
        string = {"type": "str", "required": True}
        verbs = ["look", "mark", "choose", "room", "fetch", "offer", "take", "prove", "show"]
        _, given = self.validate_argument_spec(
            {
                "verb": {"type": "str", "choices": verbs, "required": True},
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
        known, own, verb = task_vars["hostvars"], task_vars["inventory_hostname"], given["verb"]
        addresses = {str(node["name"]): str(node["address"]) for node in given["nodes"]}
        choice = task_vars.get("distribute_choice", {})
        source = choice.get("source")
        distribution = Distribution(
            given["run"],
            addresses,
            given["shared"],
            given["direct_mb"] * 1e6,
            looks={name: known[name].get("distribute_look", {}) for name in addresses},
            choice=choice,
            offer=known[source].get("distribute_offer", {}) if source else {},
            secret=given["secret"],
        )
        if verb == "choose":
            return result | distribution.choose()
        if verb == "room":
            return result | {"findings": distribution.room(own)}
        if verb == "show":
            return result | {"say": distribution.describe()}
        answer = distribution.exempt(verb)
        if answer is None:
            arguments = {
                "verb": "look" if verb == "prove" else verb,
                "run_file": given["run"]["file"],
                "node": own,
                "models": given["models"] or None,
                "spec": distribution.spec(verb, own),
                **{name: given[name] for name in ("workspace", "python", "secret", "hub_token")},
            }
            answer = self._execute_module("hearth_distribute", arguments, task_vars=task_vars)
        if verb == "prove":
            answer |= distribution.proof(answer)
        elif verb == "take" and not (answer.get("failed") or answer.get("findings")):
            relay = (own, distribution.order.chain, distribution.call, int(answer["pid"]))
            screen = Screen(self._display)
            answer = self._followed(Receiver(*relay, given["workspace"], self._ask, screen))
        return result | answer

    def _followed(self, receiver: Receiver) -> dict[str, Any]:
        """Wait until everything is on this node."""
        answered = time.monotonic()
        while True:
            try:
                if outcome := receiver.inspect():
                    return outcome
                answered = time.monotonic()
            except AnsibleConnectionFailure:
                if time.monotonic() - answered > _SILENT:
                    raise
            time.sleep(1)

    def _ask(self, command: str) -> str:
        answer = self._low_level_execute_command(command, sudoable=False)
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        return str(answer["stdout"])
