"""Try a machine by SSH: the route that ssh takes, its host key, and the facts behind the login.

The user's own configuration, agent and keys are used, as `ssh HOST` would use them. No password is
asked for, and no file is written: a host key that the user has not accepted yet is accepted for
this one connection, which sends no secret, and one that differs from the accepted key ends it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hearth.base.nvidia import NVIDIA_SMI
from hearth.base.text import plain
from hearth_controller.discover import probe
from hearth_controller.discover.machine import Login, Machine, Route, SshTarget, facts_in
from hearth_controller.inventory.hostkeys import PublicKey, keys_in
from hearth_controller.inventory.unreachable import explain

_PORT_SECONDS = 2
_PROBE_SECONDS = 30
_SSH_PORT = 22
_FAILED, _TIMED_OUT = 255, 124
"""Exit status of ssh for its own errors; of timeout(1)."""

_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": "5",
    "ServerAliveInterval": "5",
    "ServerAliveCountMax": "2",
    "LogLevel": "ERROR",
    "StrictHostKeyChecking": "accept-new",
    "HashKnownHosts": "no",
    "UpdateHostKeys": "no",
    "ControlMaster": "no",
    "ControlPath": "none",
    # A machine that is only inspected gets neither the agent nor a forwarded port.
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "AddKeysToAgent": "no",
}
_DENIED = re.compile(r"Permission denied \((?P<ways>[^)]*)\)")
_CHANGED = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|host key for \S+ has changed", re.I)


@dataclass(frozen=True)
class Done:
    """The end of a call of ssh."""

    status: int
    output: str
    errors: str


async def route_of(candidate: SshTarget) -> Route | None:
    """Return the route that ssh takes to a candidate; None if ssh refuses its name."""
    done = await _ssh(["-G", *_login(candidate), "--", candidate.host])
    if done.status:
        return None
    options: dict[str, str] = {}
    for line in done.output.splitlines():
        name, _, value = line.partition(" ")
        options.setdefault(name.lower(), value)
    host = options.get("hostname", candidate.host)
    port = int(options.get("port", _SSH_PORT))
    return Route(host, await _address_of(host), options.get("user", ""), port, options)


async def routes_to(addresses: Iterable[str]) -> dict[str, Route | None]:
    """Return the routes that ssh takes to addresses."""
    wanted = [SshTarget(address, "") for address in dict.fromkeys(filter(None, addresses))]
    routes = await asyncio.gather(*map(route_of, wanted if has_ssh() else []))
    return dict(zip([each.host for each in wanted], routes, strict=False))


def has_ssh() -> bool:
    """Return whether this computer has an SSH client."""
    return shutil.which("ssh") is not None


def _login(candidate: SshTarget) -> list[str]:
    """Return ssh's options for the user and the port that a candidate comes with."""
    user = ["-l", candidate.user] if candidate.user else []
    return [*user, *(["-p", str(candidate.port)] if candidate.port else [])]


async def _address_of(host: str) -> str:
    """Return the address behind a name, one of a home's network and IPv4 first; '' without any."""
    with suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return host
    # A command can be ended where the name server is silent, unlike a call of getaddrinfo.
    found = (await _run(["getent", "ahosts", "--", host])).output.split("\n")
    addresses = [line.split()[0] for line in found if line]
    return min(addresses, key=lambda each: (is_public(each), ":" in each), default="")


def is_public(address: str) -> bool:
    """Return whether an address is one of the internet, which no machine of a home network has."""
    return ipaddress.ip_address(address.partition("%")[0]).is_global


async def silence(route: Route) -> str:
    """Return why nothing accepts connections where a route leads, or ''.

    A route through a proxy is not tried: only ssh can.
    """
    if route.proxied:
        return ""
    try:
        opening = asyncio.open_connection(route.address, route.port)
        _, writer = await asyncio.wait_for(opening, _PORT_SECONDS)
    except TimeoutError:
        return "does not answer"
    except OSError as error:
        return f"no SSH at port {route.port} ({os.strerror(error.errno or 0)})"
    writer.close()
    return ""


async def attempt(candidate: SshTarget, route: Route) -> Machine:
    """Log in on a machine without a question, and read its facts."""
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        fresh = Path(folder, "known_hosts")
        files = [Path(each) for each in route.options.get("userknownhostsfile", "").split()]
        known = {"UserKnownHostsFile": " ".join(map(str, [fresh, *files]))}
        options = [f"-o{name}={value}" for name, value in (_OPTIONS | known).items()]
        done = await _ssh(
            [*options, *_login(candidate), "--", candidate.host, "python3", "-I", "-", *NVIDIA_SMI],
            Path(probe.__file__).read_bytes(),
        )
        name = _name_of_key(route)
        new = keys_in(fresh, name)
        keys = new or [key for file in files if file.exists() for key in keys_in(file, name)]
    return judged(candidate, route, done, keys, bool(new))


async def _ssh(words: Sequence[str], given: bytes = b"") -> Done:
    return await _run(["ssh", *words], given, _PROBE_SECONDS)


async def _run(command: Sequence[str], given: bytes = b"", seconds: float = 5) -> Done:
    """Run a command without a terminal, so that neither it nor a jump host's ssh can ask anything.

    When the time is over, or the search is given up, the command and its children are killed.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"},
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(given), seconds)
    except TimeoutError:
        return Done(_TIMED_OUT, "", f"no answer within {seconds:g} s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    status = process.returncode or 0
    return Done(status, output.decode(errors="replace"), errors.decode(errors="replace"))


def _name_of_key(route: Route) -> str:
    """Return the name that ssh looks up for a machine's host key."""
    if alias := route.options.get("hostkeyalias"):
        return alias
    host = route.host.lower()
    return host if route.port == _SSH_PORT else f"[{host}]:{route.port}"


def judged(
    candidate: SshTarget, route: Route, done: Done, keys: Sequence[PublicKey], new_key: bool
) -> Machine:
    """Return the machine that an attempt of ssh describes, from its status and its output."""
    errors = plain(done.errors).strip()
    last = (errors.splitlines() or [f"status {done.status}"])[-1]
    facts, trouble = facts_in(done.output), ""
    login: Login = "key"
    if denied := _DENIED.search(errors):
        asks = {"password", "keyboard-interactive"} & set(denied["ways"].split(","))
        login = "password" if asks else "refused"
        trouble = f"answers, but no key of yours logs in as {route.user}"
        trouble += "" if asks else ", and it takes no password"
    elif _CHANGED.search(errors):
        login, keys = "refused", ()
        trouble = (
            "has another host key than the one that you accepted before, so it is another machine "
            f"or was installed anew; then:  ssh-keygen -R {_name_of_key(route)}"
        )
    elif done.status in (_FAILED, _TIMED_OUT):
        login, trouble = "silent", explain(last)
    elif facts is None:
        login, trouble = "refused", f"lets you in, but runs no Linux with Python 3 ({last})"
    return Machine(candidate, route, login, facts, trouble, tuple(keys), new_key)
