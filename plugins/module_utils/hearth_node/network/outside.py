"""Servers outside of the machine's network that it uses: does a gateway lead to them?

ARP tells only that some machine has the gateway's address, and any PC of the home answers it.
"""

from __future__ import annotations

import glob
import re
import socket
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.network.plan import Wanted, near

_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*")
_URL = re.compile(r"^[^#\n]*?\b(https?)://([\w.-]+)(?::(\d+))?", re.MULTILINE)
_PORTS = {"http": 80, "https": 443}
_DOMAIN = 53
_MOST = 4
_SECONDS = 2

Server = tuple[str, int]


def package_servers(sources: str) -> list[Server]:
    """Return host and port of the first package servers that apt's `sources` name."""
    found = [(host, int(port or _PORTS[kind])) for kind, host, port in _URL.findall(sources)]
    return list(dict.fromkeys(found))[:_MOST]


def servers(wanted: Wanted) -> dict[str, Server]:
    """Return IPv4 address and port of servers outside of the wanted network, by their names.

    They are name servers and apt's package servers that this machine is set up to use.
    """
    paths = (path for pattern in _SOURCES for path in sorted(glob.glob(pattern)))
    named = package_servers("\n".join(map(text_of, paths)))
    named += [(server, _DOMAIN) for server in wanted.dns]
    found = {}
    with ThreadPoolExecutor(len(named) or 1) as threads:
        for (name, port), address in zip(named, threads.map(_resolve, named), strict=True):
            if address and not near(address, wanted):
                found[name] = (address, port)
    return found


def _resolve(server: Server) -> str:
    try:
        return socket.getaddrinfo(*server, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return ""


def reached(nic: str, asked: Mapping[str, Server]) -> dict[str, Server]:
    """Return the servers that answer through this NIC, even if others lead out too."""
    with ThreadPoolExecutor(len(asked) or 1) as threads:
        answers = threads.map(lambda server: _answers(nic, server), asked.values())
        return {name: asked[name] for name, answer in zip(asked, answers, strict=True) if answer}


def _answers(nic: str, server: Iterable[str | int]) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_SECONDS)
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode())
            probe.connect(tuple(server))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return True
