"""Reach a machine over SSH: try its addresses, pin its host key.

One handshake per address, without a login: no data is sent to a machine before its host key is
known.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hearth.base.files import alone
from hearth_controller.base.paths import as_typed
from hearth_controller.inventory import ssh
from hearth_controller.inventory.hostkeys import (
    Answer,
    PublicKey,
    algorithms,
    choose,
    keys_in,
    owners_in,
)


def reach(
    name: str,
    addresses: Sequence[str],
    known_hosts: Path,
    option: Callable[[str], Any],
    timeout: int,
) -> dict[str, Any]:
    """Find the address of a machine, pinning its host key if none is pinned under `name`.

    `addresses` are its intended one and, if given, its possible current one; `option` returns an
    option of the connection. The result may be that it is `unreachable`, or `failed` with a
    different key.
    """
    pinned = keys_in(known_hosts, name)
    candidates = list(dict.fromkeys(filter(None, addresses)))
    with ThreadPoolExecutor(len(candidates)) as threads:
        found = threads.map(lambda address: greet(option, address, timeout, pinned), candidates)
        answers = dict(zip(candidates, found, strict=True))
    shown = as_typed(known_hosts)
    choice = choose(name, answers, pinned, shown, owners_in(known_hosts))
    if not choice.address:
        silent = not any(answer.key for answer in answers.values())
        return {"unreachable" if silent else "failed": True, "msg": choice.trouble}
    result = {
        "address": choice.address,
        "present": choice.address == addresses[0],
        "keys": [f"{key.type} {key.text}" for key in pinned or [choice.key]],
        "stranger": choice.stranger,
    }
    if not pinned:
        pin(known_hosts, name, choice.key)
        # The file is on the controller: nothing on the machine has changed.
        result["note"] = f"host key {choice.key} pinned in {shown}"
    return result


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
            "HostKeyAlias": "candidate",
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
        keys = keys_in(file, "candidate")
        return Answer(keys[0]) if keys else Answer(reason=reason)


def own_keys(folder: Path = Path("/etc/ssh")) -> list[PublicKey]:
    """Return the host keys of this computer's SSH server, if it has one."""
    files = sorted(folder.glob("ssh_host_*_key.pub"))
    return [PublicKey.from_line(file.read_text()) for file in files]


def is_here(address: str) -> bool:
    """Return whether `address` belongs to this computer."""
    try:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def listens(address: str, port: int) -> bool:
    """Return whether a server accepts connections at an address of this computer."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def pin(file: Path, name: str, key: PublicKey) -> None:
    """Add a key to a known_hosts file, safely if several machines are pinned at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone(file.parent):
        if key not in keys_in(file, name):
            text = file.read_text() if file.exists() else ""
            gap = "" if not text or text.endswith("\n") else "\n"
            with file.open("a") as known:
                known.write(f"{gap}{name} {key.type} {key.text}\n")
