"""Action plugin: find a machine's address, and verify its identity by host key.

Works on the controller. One SSH handshake per address, without a login: no data is sent to a
machine before its host key is known.
"""

from __future__ import annotations

import fcntl
import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.paths import as_typed
from hearth_controller.inventory import ssh
from hearth_controller.inventory.hostkeys import Answer, PublicKey, algorithms, choose, keys_of

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

RETURN = r"""
address:
  description: Where the machine is reached.
  type: str
  returned: always
present:
  description: Whether that is O(address), the one that it is to have.
  type: bool
  returned: always
keys:
  description: The machine's host keys, each as type and text.
  type: list
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


def greet(
    option: Callable[[str], Any], address: str, timeout: int, pinned: Sequence[PublicKey]
) -> Answer:
    """Return the host key that an address presents.

    `option` returns an option of the connection. ssh writes the key of an unknown host into an
    empty known_hosts file before the login; unlike ssh-keyscan it takes the connection's route
    (ProxyCommand, ProxyJump, ~/.ssh/config).
    """
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        file = Path(folder, "known_hosts")
        first = {
            "UserKnownHostsFile": f'"{file}"',
            "GlobalKnownHostsFile": "/dev/null",
            "HostKeyAlias": "asked",
            "HashKnownHosts": "no",
            "StrictHostKeyChecking": "accept-new",
            "UpdateHostKeys": "no",
            "CheckHostIP": "no",
            "PreferredAuthentications": "none",
            "ConnectTimeout": str(timeout),
        }
        if kinds := algorithms(pinned):
            first["HostKeyAlgorithms"] = kinds
        reason = ssh.attempt([*ssh.command(option, first), address, "true"], timeout + 1)
        keys = keys_of(file.read_text(), "asked") if file.exists() else []
        return Answer(keys[0]) if keys else Answer(reason=reason)


def own_keys(folder: Path = Path("/etc/ssh")) -> list[PublicKey]:
    """Return the host keys of this computer's SSH server, if it has one."""
    files = sorted(folder.glob("ssh_host_*_key.pub"))
    return [PublicKey.of(file.read_text()) for file in files]


def is_here(address: str) -> bool:
    """Return whether `address` belongs to this computer."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def pin(file: Path, name: str, key: PublicKey) -> None:
    """Add a key to a known_hosts file, safely if several machines are pinned at once."""
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
        """Return the address, or that the machine is unreachable or a different one."""
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
            local = self._connection.transport == "local"
            keys = [f"{key.type} {key.text}" for key in own_keys()] if local else []
            return result | {"keys": keys, "present": local and is_here(arguments["address"])}
        name = task_vars["inventory_hostname"]
        file = Path(arguments["known_hosts"])
        pinned = keys_of(file.read_text(), name) if file.exists() else []
        addresses = dict.fromkeys(filter(None, (arguments["address"], arguments["first_address"])))
        option, timeout = self._connection.get_option, arguments["timeout"]
        with ThreadPoolExecutor(len(addresses)) as threads:
            asked = {
                address: threads.submit(greet, option, address, timeout, pinned)
                for address in addresses
            }
            answers = {address: future.result() for address, future in asked.items()}
        shown = as_typed(file)
        choice = choose(name, answers, pinned, shown)
        if not choice.address:
            silent = not any(answer.key for answer in answers.values())
            return result | {"unreachable" if silent else "failed": True, "msg": choice.trouble}
        if not pinned:
            pin(file, name, choice.key)
            # The file is on the controller: nothing on the machine has changed.
            result["note"] = f"host key {choice.key} pinned in {shown}"
        return result | {
            "address": choice.address,
            "present": choice.address == arguments["address"],
            "keys": [f"{key.type} {key.text}" for key in pinned or [choice.key]],
            "stranger": choice.stranger,
        }
