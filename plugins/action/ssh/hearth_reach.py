"""Action plugin: find a machine's address, and verify its identity by host key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.nics import is_own
from hearth_controller.base.options import argument_spec
from hearth_controller.inventory.reach import own_keys, reach

DOCUMENTATION = r"""
module: hearth_reach
short_description: Where a machine is reached; its host key is shown, pinned and checked
description:
  - The address that the machine is to have is tried first, then O(first_address). The one that
    answers with the pinned key is taken. Where no key is pinned, the one that answers is shown and
    pinned under the machine's name in the inventory.
  - A machine that does not answer is unreachable. One with another key fails with an explanation.
  - Without SSH (C(ansible_connection=local)) there is nothing to do.
options:
  address:
    description: Where the inventory says that the machine is reached.
    type: str
    required: true
  first_address:
    description: Where it is reached before it has that address; empty if nowhere else.
    type: str
    default: ""
  known_hosts:
    description: The known_hosts file of the inventory.
    type: path
    required: true
  timeout:
    description: Seconds until an address that does not answer is given up.
    type: int
    default: 8
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return where the machine is reached, or that it is unreachable or a different one.

        The result has `address`, `present` (it is the intended one), the machine's host `keys`,
        `stranger` (about another machine at the intended address, or '') and, if a key was pinned
        just now, a `note`.
        """
        result = super().run(tmp, task_vars) | {"changed": False, "stranger": ""}
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        address, transport = arguments["address"], self._connection.transport
        result["address"] = address
        if transport != "ssh":
            local = transport == "local"
            keys = [f"{key.type} {key.text}" for key in own_keys()] if local else []
            return result | {"keys": keys, "present": local and is_own(address)}
        return result | reach(
            task_vars["inventory_hostname"],
            [address, arguments["first_address"]],
            Path(arguments["known_hosts"]),
            self._connection.get_option,
            arguments["timeout"],
        )
