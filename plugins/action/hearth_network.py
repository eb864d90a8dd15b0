"""Action plugin: look at a node's address, or change it and come back at the new one.

The node takes a change back by itself unless it is confirmed. The controller confirms it once it
has reached the node at the new address, over a connection of its own.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

_LOCAL = ("local", "ansible.builtin.local")
_ANSWER_WITHIN = 5  # seconds for one try to log in
_GRACE = 45  # seconds after its own undo in which a node has to answer at its old address


def addresses_of(host: str) -> list[str]:
    """Return the IPv4 addresses that a host of the inventory has, without those of loopback."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, socket.AF_INET)}
    except OSError:
        return []
    return sorted(each for each in found if not ipaddress.ip_address(each).is_loopback)


def peers_of(
    name: str, members: Iterable[str], variables: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[str]]:
    """Return where the other nodes may be reached now: addresses by name, the cluster's first."""
    peers = {}
    for member in members:
        its = variables[member]
        local = its.get("ansible_connection") in _LOCAL
        known = [its.get("cluster_address"), None if local else its.get("ansible_host")]
        addresses = [str(each) for each in known if each]
        if member != name and addresses:
            peers[member] = list(dict.fromkeys(addresses))
    return peers


def story(tried: str, why: Iterable[str], aftermath: Mapping[str, Any] | None, old: str) -> str:
    """Return in one message what was tried, why it did not stay, and how the machine is now.

    `aftermath` is what the node says of it, None if it does not answer.
    """
    lines = [f"{tried} was tried and not kept: {'; '.join(why)}."]
    if aftermath is None:
        lines.append(
            f"The machine does not answer at {old} yet. It takes the change back by itself, also "
            "when it is switched off and on."
        )
        return "\n".join(lines)
    now = ", ".join(aftermath["addresses"]) or "no address"
    how = "has restarted and" if aftermath["restarted"] else "has taken the change back; it"
    files = "as they were" if aftermath["as_before"] else "NOT as they were"
    lines.append(f"The machine {how} is at {now} again, its configuration files are {files}.")
    if aftermath["said"]:
        lines.append(f"Its words: {aftermath['said']}")
    return "\n".join(lines)


class ActionModule(ActionBase):
    """Comes back at the new address."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return what the module says; with state apply, what became of the change."""
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
        state = wanted.pop("state", "look")
        members = self._variables["groups"].get("cluster", [])
        if wanted.get("mode") != "static":  # those that could not be reached have their own finding
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
        """Arm the change, come back and confirm it; else wait until the node has undone it."""
        began = time.monotonic()
        armed = self._call(wanted | {"state": "arm"})
        if armed.get("failed") or not armed.get("token"):
            said = armed.get("msg") or "\n".join(armed.get("findings", []))
            return armed | ({"failed": True, "msg": said} if said else {})
        seconds = int(wanted.get("seconds", 120))
        new = str(wanted["address"])
        told = wanted | {"token": armed["token"]}
        why = self._confirm(told | {"state": "confirm"}, new, began + seconds)
        if not why:
            return {"changed": True, "address": new, "diff": armed["diff"]}
        aftermath = self._aftermath(told | {"state": "after", "seconds": 30}, began + seconds)
        tried = f"{new}/{armed['wanted']['prefix']} on {armed['nic']}"
        if armed["wanted"]["gateway"]:
            tried += f" with the gateway {armed['wanted']['gateway']}"
        return {
            "failed": True,
            "changed": False,
            "msg": story(tried, why, aftermath, ", ".join(armed["addresses"])),
        }

    def _confirm(self, arguments: dict[str, Any], address: str, end: float) -> list[str]:
        """Return why the change was not confirmed at this address; nothing if it was."""
        why = f"no answer at {address}"
        time.sleep(2)  # the node waits a second before it touches its link
        self._go_to(address)
        while time.monotonic() < end:
            answer = self._try(arguments)
            if answer is None:
                time.sleep(1)
            elif answer.get("stranger"):
                why = f"another machine answers at {address}, or this one has restarted"
                time.sleep(1)
            elif "confirmed" not in answer:
                why = str(answer.get("msg", "the node did not understand"))
                time.sleep(1)
            else:
                return [str(each) for each in answer["why"]]
        return [why]

    def _aftermath(self, arguments: dict[str, Any], end: float) -> dict[str, Any] | None:
        """Return what the node says once it is back at its old address, or None."""
        self._go_to(self._old)
        while time.monotonic() < end + _GRACE:
            answer = self._try(arguments)
            if answer and answer.get("undone"):
                return answer
            time.sleep(1)
        return None

    def _go_to(self, address: str) -> None:
        """Make the next connection a fresh one to this address."""
        if self._local:
            return
        self._reset()
        self._play_context.remote_addr = address
        self._connection.set_option("host", address)
        self._connection.set_option("timeout", _ANSWER_WITHIN)
        self._reset()

    def _reset(self) -> None:
        """Close what is left of a connection that a change of address may have cut."""
        self._connection.reset()

    def _try(self, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Return the node's answer, None if it cannot be reached."""
        try:
            return self._call(arguments)
        except AnsibleConnectionFailure:
            self._reset()
            return None
