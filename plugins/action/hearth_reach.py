"""Action plugin: find out where a machine is reached, and that it is the one that is meant.

Works on the controller. One SSH greeting an address, without a login: nothing is sent to a machine
before its host key is known.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.inventory.hostkeys import Answer, HostKey, algorithms, choose, keys_of

DOCUMENTATION = r"""
module: hearth_reach
short_description: Where a machine is reached; its host key is shown, pinned and checked
description:
  - The address that the machine is to have is tried first, then RV(first_address). The one that
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

RETURN = r"""
address:
  description: Where the machine is reached.
  type: str
  returned: always
stranger:
  description: The sentence about another machine that has the address this one is to have, or ''.
  type: str
  returned: always
note:
  description: The key that was pinned just now.
  type: str
  returned: when one was
"""


def greet(command: Sequence[str], address: str, timeout: int) -> Answer:
    """Return the host key that an address presents.

    `command` is ssh with the options of the connection. ssh writes the key of a host that it does
    not know into an empty known_hosts file before anybody logs in; unlike ssh-keyscan it goes the
    way of the connection (ProxyCommand, ProxyJump, ~/.ssh/config).
    """
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        file = Path(folder, "known_hosts")
        # What is said first holds.
        first = {
            "UserKnownHostsFile": f'"{file}"',
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": "asked",
            "HashKnownHosts": "no",
            "StrictHostKeyChecking": "accept-new",
            "UpdateHostKeys": "no",
            "CheckHostIP": "no",
            "PreferredAuthentications": "none",
            "BatchMode": "yes",
            "ControlPath": "none",
            "ConnectTimeout": str(timeout),
            "LogLevel": "ERROR",
        }
        options = [word for key, value in first.items() for word in ("-o", f"{key}={value}")]
        said = ""
        try:
            said = subprocess.run(
                [command[0], *options, *command[1:], address, "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout + 1,
                check=False,
            ).stderr
        except subprocess.TimeoutExpired:
            said = f"no answer within {timeout} s"
        if file.exists() and (keys := keys_of(file.read_text(), "asked")):
            return Answer(keys[0])
        return Answer(reason=(said.strip().splitlines() or ["it said nothing"])[-1])


def pin(file: Path, name: str, key: HostKey) -> None:
    """Add a key to a known_hosts file; several machines may be pinned at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+") as known:
        fcntl.flock(known, fcntl.LOCK_EX)
        known.seek(0)
        text = known.read()
        if key not in keys_of(text, name):
            gap = "" if not text or text.endswith("\n") else "\n"
            known.write(f"{gap}{name} {key.type} {key.text}\n")


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the address, or that the machine is unreachable or another one."""
        result = super().run(tmp, task_vars) | {"changed": False, "stranger": ""}
        _, arguments = self.validate_argument_spec(
            {
                "address": {"type": "str", "required": True},
                "first_address": {"type": "str", "default": ""},
                "known_hosts": {"type": "path", "required": True},
                "timeout": {"type": "int", "default": 8},
            }
        )
        result["address"] = arguments["address"]
        if self._connection.transport != "ssh":
            return result
        name = task_vars["inventory_hostname"]
        file = Path(arguments["known_hosts"])
        pinned = keys_of(file.read_text(), name) if file.exists() else []
        addresses = dict.fromkeys(filter(None, (arguments["address"], arguments["first_address"])))
        command = self._command(pinned)
        with ThreadPoolExecutor(len(addresses)) as threads:
            asked = {
                address: threads.submit(greet, command, address, arguments["timeout"])
                for address in addresses
            }
            answers = {address: future.result() for address, future in asked.items()}
        shown = self._shown(file)
        choice = choose(name, answers, pinned, shown)
        if not choice.address:
            silent = not any(answer.key for answer in answers.values())
            return result | {"unreachable" if silent else "failed": True, "msg": choice.trouble}
        if not pinned:
            pin(file, name, choice.key)
            result |= {"changed": True, "note": f"host key {choice.key} pinned in {shown}"}
        return result | {"address": choice.address, "stranger": choice.stranger}

    def _command(self, pinned: Sequence[HostKey]) -> list[str]:
        """Return ssh as the connection calls it, without a login."""
        option = self._connection.get_option
        command = [option("ssh_executable")]
        if first := algorithms(pinned):
            command += ["-o", f"HostKeyAlgorithms={first}"]
        for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
            command += shlex.split(option(name) or "")
        if port := option("port"):
            command += ["-p", str(port)]
        if user := option("remote_user"):
            command += ["-l", str(user)]
        return command

    @staticmethod
    def _shown(file: Path) -> str:
        """Return a file as one would type it here."""
        way = os.path.relpath(file)
        return str(file) if way.startswith("..") else way
