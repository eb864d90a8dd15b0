"""Action plugin: set up rank 0's SSH login on the workers, from the inventory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.nics import answers
from hearth_controller.base.options import argument_spec
from hearth_controller.inventory.hostkeys import keys_in
from hearth_controller.inventory.nodes import read_nodes

DOCUMENTATION = r"""
module: hearth_cluster_ssh
short_description: A key of rank 0's own, and what its SSH knows of the workers
description:
  - Runs on rank 0. See the module of the same name, which does what this one works out.
options:
  only_key:
    description: Whether only the key is made.
    type: bool
    default: false
  known_hosts:
    description: The known_hosts file of the inventory.
    type: path
    required: true
"""


def worker(name: str, address: str, known: Mapping[str, Any], pinned: Path) -> dict[str, Any]:
    """Return a worker's login data for rank 0.

    `known` are the worker's variables, `pinned` is the inventory's known_hosts file. An offline
    worker keeps its data, so that nothing changes.
    """
    keys = [f"{key.type} {key.text}" for key in keys_in(pinned, name)]
    local = known.get("ansible_connection") == "local"
    user = None if local else known.get("ansible_user")
    return {
        "name": name,
        "address": address,
        "port": None if local else known.get("ansible_port"),
        "user": str(user or known.get("ssh_worker", {}).get("user") or ""),
        "keys": keys or list(known.get("machine_host_keys", [])),
    }


def without_server(
    workers: Iterable[Mapping[str, Any]], known: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the workers on this computer that run no SSH server; `known` are all variables."""
    return [
        worker["name"]
        for worker in workers
        if known[worker["name"]].get("ansible_connection") == "local"
        and not (worker["keys"] and answers(worker["address"], worker["port"] or 22))
    ]


class ActionModule(ActionBase):
    """Runs on the controller, around the module of the same name."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, with a `note` if the controller runs no SSH server."""
        super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        if arguments["only_key"]:
            return self._execute_module(module_args={}, task_vars=task_vars)
        hostvars = task_vars["hostvars"]
        names = task_vars["groups"]["cluster"]
        nodes, _ = read_nodes({name: hostvars[name] for name in names})
        pinned = Path(arguments["known_hosts"])
        workers = [
            worker(node.name, node.address, hostvars[node.name], pinned)
            for node in nodes
            if node.name != task_vars["inventory_hostname"]
        ]
        known = [each for each in workers if each["keys"]]
        silent = without_server(workers, hostvars)
        # A worker that is not at its address yet gets there in the stage network.
        here = task_vars["machine_present"]
        ready = [
            each["name"]
            for each in known
            if here
            and each["name"] not in silent
            and hostvars[each["name"]].get("machine_present")
            and "user" in hostvars[each["name"]].get("ssh_worker", {})
        ]
        answer = self._execute_module(
            module_args={"workers": known, "attempt": ready}, task_vars=task_vars
        )
        if silent:
            name = silent[0]
            answer["note"] = (
                f"{name} runs no SSH server, so that `ssh {name}` does not work here; no run needs "
                f"it. If you do: sudo apt install openssh-server on {name}"
            )
        return answer
