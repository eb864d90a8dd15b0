"""Action plugin: check a node's address, or change it and reconnect at the new one.

The node undoes a change by itself unless it is confirmed. The controller confirms it once it has
reached the node at the new address, over a new connection.
"""

from __future__ import annotations

import ipaddress
import itertools
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

_LOCAL = ("local", "ansible.builtin.local")
_ANSWER_WITHIN = 10  # seconds per login attempt
_TOUCHED_AFTER = 3  # seconds after which the node has certainly begun to change its link
_GRACE = 120  # seconds after its undo within which a node must answer at its old address


def addresses_of(host: str) -> list[str]:
    """Return the IPv4 addresses of an inventory host, without loopback."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError:
        return []
    return sorted(each for each in found if not ipaddress.ip_address(each).is_loopback)


def peers_of(
    name: str, members: Iterable[str], variables: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return the other nodes' possible addresses by name, the cluster address first."""
    peers = {}
    for member in members:
        its = variables[member]
        local = its.get("ansible_connection") in _LOCAL
        known = [its.get("cluster_address"), None if local else its.get("ansible_host")]
        addresses = [str(each) for each in known if each]
        if member != name and addresses:
            peers[member] = list(dict.fromkeys(addresses))
    return peers


def story(armed: Mapping[str, Any], why: str, aftermath: Mapping[str, Any] | None) -> str:
    """Return one message: the attempted change, why it was undone, and the machine's state now.

    `armed` is the node's answer before, `aftermath` its answer now; None if it does not answer.
    """
    tried = f"what {armed['nic']} had before Hearth"
    if wanted := armed["wanted"]:
        gateway = f" with the gateway {wanted['gateway']}" if wanted["gateway"] else ""
        tried = f"{wanted['address']}/{wanted['prefix']}{gateway} on {armed['nic']}"
    lines = [f"tried {tried}, and did not keep it: {why}."]
    if aftermath is None:
        old = ", ".join(armed["addresses"])
        return (
            f"{lines[0]}\nThe machine does not answer at {old} yet. It takes the change back by "
            "itself, also when it is switched off and on."
        )
    now = ", ".join(aftermath["addresses"]) or "no address"
    how = "has restarted" if aftermath["restarted"] else "has taken the change back"
    same = aftermath["digest"] == armed["digest"]
    file = "as it was" if same else "NOT as it was; check it"
    lines.append(f"The machine {how} and is at {now}; {armed['target']} is {file}.")
    if aftermath["said"]:
        lines.append(f"Errors meanwhile: {aftermath['said']}")
    return "\n".join(lines)


def unproved(armed: Mapping[str, Any]) -> str:
    """Return the note on a new gateway that could not be tested."""
    return (
        f"whether the gateway {armed['wanted']['gateway']} leads out of the home could not be "
        "proved: no name server or package server outside answered before the change either"
    )


class ActionModule(ActionBase):
    """Reconnects at the new address."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result; with state apply, the outcome of the change."""
        result = super().run(tmp, task_vars)
        self._variables = task_vars or {}
        name, hostvars = self._variables["inventory_hostname"], self._variables["hostvars"]
        self._local = self._connection.transport in _LOCAL
        its = hostvars[name]  # unlike task_vars, with templates resolved
        self._old = str(its.get("ansible_host") or name)
        reached = []
        if not self._local:
            reached = addresses_of(self._old) + addresses_of(str(its.get("first_address") or name))
        wanted = dict(self._task.args)
        state = wanted.pop("state", "inspect")
        members = self._variables["groups"].get("cluster", [])
        if wanted.get("mode") != "static":  # unreachable nodes have their own finding
            members = [each for each in members if each in self._variables["ansible_play_hosts"]]
        wanted |= {"reached": reached, "peers": peers_of(name, members, hostvars)}
        if state == "apply" and not self._task.check_mode:
            return result | self._apply(wanted)
        answer = self._call(wanted)
        if state == "apply":
            answer["changed"] = bool(answer.get("pending"))
        return result | answer

    def _call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._execute_module("hearth_network", arguments, task_vars=self._variables)

    def _apply(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Arm the change, reconnect and confirm it; else wait until the node has undone it."""
        end = time.monotonic() + int(wanted.get("seconds", 120))
        armed = self._call(wanted | {"state": "arm"})
        if not armed.get("token"):
            reason = armed.get("msg") or "\n".join(armed.get("findings", []))
            return armed | ({"failed": True, "msg": reason} if reason else {})
        change = wanted | {"token": armed["token"]}
        goals = armed["goals"]
        if not armed["wanted"]:  # a new lease may differ from the old one
            goals = list(dict.fromkeys([*goals, self._old]))
        self._olds = list(dict.fromkeys([self._old, *armed["addresses"]]))
        why, address, aftermath = self._confirm(change, goals, end)
        if not why:
            done = {"changed": True, "address": address, "diff": armed["diff"]}
            return done | ({"note": unproved(armed)} if armed["unproved"] else {})
        aftermath = aftermath or self._aftermath(change, end)
        if aftermath and aftermath["why"]:  # the node's own reason is more exact
            why = "; ".join(aftermath["why"])
        return {"failed": True, "changed": False, "msg": story(armed, why, aftermath)}

    def _confirm(
        self, change: dict[str, Any], goals: list[str], end: float
    ) -> tuple[str, str, dict[str, Any] | None]:
        """Return the reason why the change was not confirmed, or '', and the node's address.

        The last is the node's answer if it has meanwhile come back as it was, after a power cut.
        """
        why = f"no answer at {' or '.join(goals)}"
        time.sleep(_TOUCHED_AFTER)
        for address in itertools.cycle(goals):
            if time.monotonic() >= end:
                break
            self._go_to(address)
            answer = self._try(change | {"state": "confirm"})
            if answer and "confirmed" in answer and not answer.get("stranger"):
                return "; ".join(answer["why"]), address, None
            if answer:
                reason = answer.get("msg") or "; ".join(answer.get("why", []))
                why = f"at {address} answers a machine that cannot confirm it ({reason})"
            if aftermath := self._look_back(change, seconds=0):
                return why, "", aftermath
            time.sleep(1)
        return why, "", None

    def _aftermath(self, change: dict[str, Any], end: float) -> dict[str, Any] | None:
        """Return the node's answer once it is back at its old address, or None."""
        while time.monotonic() < end + _GRACE:
            if answer := self._look_back(change, seconds=30):
                return answer
            time.sleep(1)
        return None

    def _look_back(self, change: dict[str, Any], seconds: int) -> dict[str, Any] | None:
        """Return the node's answer at an address that it had, if the change is undone there."""
        for address in self._olds:
            self._go_to(address)
            answer = self._try(change | {"state": "after", "seconds": seconds})
            if answer and answer.get("undone"):
                return answer
        return None

    def _go_to(self, address: str) -> None:
        """Make the next connection a new one to this address."""
        if self._local:
            return
        self._connection.reset()  # the change may have cut the old connection
        self._play_context.remote_addr = address
        self._connection.set_option("host", address)
        self._connection.set_option("timeout", _ANSWER_WITHIN)

    def _try(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the node's answer, or None if it is unreachable."""
        try:
            return self._call(arguments)
        except AnsibleError:  # no answer, or the host key of another machine
            return None
