"""Action plugin: run each node's part in distributing model and data, and show the progress."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth_controller.base.node_program import after_mark, marked
from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import Screen
from hearth_controller.transfer.distribution import Distribution
from hearth_controller.transfer.receive import Receiver

DOCUMENTATION = r"""
module: hearth_distribute
short_description: Bring model and data of a run to all nodes
options:
  verb:
    description:
      - V(fetch), V(offer) and V(take) do that on a node, see C(hearth.transfer). V(take) also waits
        until everything is there, and shows its progress.
      - V(choose) says who downloads and who sends to whom. Meant to run once, as is V(offer).
      - V(room) says whether a node has room for what it lacks, once its size is known.
      - V(prove) inspects a node once more; V(show) says where everything is in the end, and is
        meant to run once.
    type: str
    choices: [choose, room, fetch, offer, take, prove, show]
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
  looks:
    description: Results of M(hearth_look), in the order of O(nodes).
    type: list
    elements: dict
    required: true
  choice:
    description: Result of V(choose); wanted by the verbs after it.
    type: dict
    default: {}
  offer:
    description: Result of V(offer); wanted by V(room) and V(take).
    type: dict
    default: {}
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
  variables:
    description: Environment variables of what runs on the node, by name.
    type: dict
    default: {}
  shared:
    description: A folder that all nodes see; then nothing is sent.
    type: str
    default: ""
  direct_mb:
    description: Data files up to this size in MB come from the controller to every node.
    type: float
    default: 32
  secret:
    description: Secret that the nodes of this call share.
    type: str
    no_log: true
  hub_token:
    description: Token for gated models.
    type: str
    no_log: true
"""

_SILENT = 60.0
"""Seconds without an answer after which a node counts as lost."""


class ActionModule(ActionBase):
    """Runs its module on a node, or plans on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Run the requested verb; return its result, with the node's `findings`.

        `choose` returns the `source` that downloads and sends, what each node `lacks` (in the order
        of the chain), the nodes that share another's disk (`alike`), what is to be downloaded
        (`fetches`), and by node the data files that it gets from the controller (`copies`) or from
        the folder that all nodes see (`links`).
        """
        result = super().run(tmp, task_vars) | {"changed": False, "findings": []}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        own, verb = task_vars["inventory_hostname"], given["verb"]
        addresses = {str(node["name"]): str(node["address"]) for node in given["nodes"]}
        distribution = Distribution(
            given["run"],
            addresses,
            given["shared"],
            given["direct_mb"] * 1e6,
            dict(zip(addresses, given["looks"], strict=True)),
            given["choice"],
            given["offer"],
            given["secret"],
        )
        match verb:
            case "choose":
                return result | distribution.choose()
            case "room":
                return result | {"findings": distribution.room(own)}
            case "show":
                return result | {"say": distribution.describe()}
            case "take" if "digest" not in given["offer"].get("facts", {}):
                # The source reports its own findings.
                source = given["choice"]["source"]
                return result | {"findings": [f"{source} does not send what this node lacks"]}
        places = {name: given[name] for name in ("workspace", "python", "models", "variables")}
        arguments = {**places, "run_file": given["run"]["file"], "node": own}
        if verb == "prove":
            wanted = {"address": addresses[own], "copies": True, "shared": given["shared"]}
            look = arguments | {"spec": wanted}
            answer = self._execute_module("hearth_look", look, task_vars=task_vars)
            return result | answer | distribution.proof(answer)
        command = {"command": ["hearth.transfer", verb], "spec": distribution.spec(verb, own)}
        secrets = {"hub_token": given["hub_token"]} if verb == "fetch" else {}
        secrets |= {"secret": given["secret"]} if verb != "fetch" else {}
        answer = self._execute_module(
            "hearth_command", arguments | command | secrets, task_vars=task_vars
        )
        if verb == "take" and not (answer.get("failed") or answer.get("findings")):
            pid = int(answer["facts"]["pid"])
            relay = (own, distribution.order.chain, distribution.call, pid)
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
        answer = self._low_level_execute_command(marked(command), sudoable=False)
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        try:
            return after_mark(str(answer["stdout"]))
        except ConnectionError as error:
            raise AnsibleConnectionFailure(str(error)) from None
