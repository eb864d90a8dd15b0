"""Calls of OpenSSH by the controller: try the addresses of a machine, and pin its host key.

One handshake per address, without a login: no data is sent to a machine before its host key is
known.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hearth.base.commands import run
from hearth.base.files import alone
from hearth_controller.base.paths import as_typed
from hearth_controller.inventory.hostkeys import (
    HostKeyAnswer,
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
) -> HostKeyAnswer:
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
        reason = attempt([*command(option, first), address, "true"], timeout + 1)
        keys = keys_in(file, "candidate")
        return HostKeyAnswer(keys[0]) if keys else HostKeyAnswer(reason=reason)


def own_keys(folder: Path = Path("/etc/ssh")) -> list[PublicKey]:
    """Return the host keys of this computer's SSH server, if it has one."""
    files = sorted(folder.glob("ssh_host_*_key.pub"))
    return [PublicKey.from_line(file.read_text()) for file in files]


def pin(file: Path, name: str, key: PublicKey) -> None:
    """Add a key to a known_hosts file, safely if several machines are pinned at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with alone(file.parent):
        if key not in keys_in(file, name):
            text = file.read_text() if file.exists() else ""
            gap = "" if not text or text.endswith("\n") else "\n"
            with file.open("a") as known:
                known.write(f"{gap}{name} {key.type} {key.text}\n")


# A single attempt on a new connection, without prompts and with errors as the only output.
_ALONE = {"BatchMode": "yes", "ControlPath": "none", "LogLevel": "ERROR"}


def command(option: Callable[[str], Any], first: Mapping[str, str]) -> list[str]:
    """Return the ssh command of Ansible's connection, without the host.

    `option` returns an option of the ssh connection plugin by name. `first` are ssh options that
    override all others, since ssh uses the first value of an option.
    """
    parts = [str(option("ssh_executable"))]
    for name, value in {**_ALONE, **first}.items():
        parts += ["-o", f"{name}={value}"]
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        parts += shlex.split(option(name) or "")
    if key := option("private_key_file"):
        parts += ["-i", os.path.expanduser(key)]
    if port := option("port"):
        parts += ["-p", str(port)]
    if user := option("remote_user"):
        parts += ["-l", str(user)]
    return parts


def attempt(command: list[str], seconds: float) -> str:
    """Run ssh; return the last line of its error, or '' on success."""
    done = run(*command, seconds=seconds, environment=os.environ)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
