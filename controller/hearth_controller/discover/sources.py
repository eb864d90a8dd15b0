"""Sources of machines: announcements by mDNS (Avahi, Bonjour), names in the user's SSH files."""

from __future__ import annotations

import glob
import os
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SERVICES = ("_ssh._tcp.local.", "_sftp-ssh._tcp.local.", "_workstation._tcp.local.")
SECONDS = 3.0
_MOST = 100
"""Services that are looked up: more come from no home."""

_SSH = 22


@dataclass(frozen=True)
class Announcement:
    """A machine's name without `.local`, its IPv4 address and its SSH port."""

    name: str
    address: str
    port: int


def listen(
    seconds: float = SECONDS, interfaces: Sequence[str] | None = None
) -> tuple[list[Announcement], str]:
    """Return the machines that announce themselves within some seconds, and why it failed or ''.

    `interfaces` are the own addresses to listen at, by default all.
    """
    try:
        from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, Zeroconf
    except ImportError:
        return [], "the package zeroconf is missing; ./scripts/setup installs it"
    names: set[tuple[str, str]] = set()

    def note(zeroconf: Zeroconf, service_type: str, name: str, **_: object) -> None:
        names.add((service_type, name))

    try:
        with Zeroconf(interfaces or InterfaceChoice.All, ip_version=IPVersion.V4Only) as zeroconf:
            ServiceBrowser(zeroconf, list(SERVICES), handlers=[note])
            time.sleep(seconds)
            found = []
            for kind, name in sorted(names)[:_MOST]:
                info = ServiceInfo(kind, name)
                # The answers usually bring the address along; one more question is asked if not.
                if info.load_from_cache(zeroconf) or info.request(zeroconf, 300):
                    found += _of(info.server or name, info.parsed_addresses(), kind, info.port)
    except (OSError, RuntimeError) as error:
        return [], f"mDNS cannot be used here ({error})"
    return list(dict.fromkeys(found)), ""


def _of(server: str, addresses: Sequence[str], kind: str, port: int | None) -> list[Announcement]:
    """Return the announcements in a service: one for each IPv4 address."""
    # A workstation announces port 9 (discard), since it is no service.
    ssh = port if port and "ssh" in kind else _SSH
    name = server.removesuffix(".").removesuffix(".local")
    return [Announcement(name, address, ssh) for address in addresses if ":" not in address]


_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_PATTERN = set("*?!")
_MARKED = re.compile(r"\[(?P<host>.+)\]:(?P<port>\d+)")


@dataclass(frozen=True)
class KnownHosts:
    """The names in a known_hosts file, with ports; `hashed` counts the entries without a name."""

    names: tuple[tuple[str, int], ...]
    hashed: int


def config_hosts(file: Path, read: set[Path] | None = None) -> list[str]:
    """Return the names after `Host` in an ssh_config file and in those that it includes.

    Patterns are not names of a machine. A file that cannot be read has none, and none of `read` is
    read again.
    """
    read = {file} if read is None else read
    found: list[str] = []
    for keyword, words in _lines(file):
        if keyword == "host":
            found += [word for word in words if not _PATTERN & set(word)]
        elif keyword == "include":
            for word in words:
                # ssh looks for a relative path in the folder ~/.ssh, also from within a file below.
                pattern = os.path.join(Path.home() / ".ssh", os.path.expanduser(word))
                for path in map(Path, sorted(glob.glob(pattern))):
                    if path not in read:
                        read.add(path)
                        found += config_hosts(path, read)
    return list(dict.fromkeys(found))


def _lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield keyword and words of the lines of an ssh_config file."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        if found := _KEYWORD.fullmatch(line):
            try:
                words = shlex.split(found[2], comments=True)
            except ValueError:  # a quote without its end; ssh itself refuses the file
                words = found[2].split()
            yield found[1].lower(), words


def known_hosts(text: str) -> KnownHosts:
    """Return the names in the text of a known_hosts file; revoked keys and patterns have none."""
    names: list[tuple[str, int]] = []
    hashed = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or words[0].startswith(("#", "@")):
            continue
        if words[0].startswith("|"):
            hashed += 1
            continue
        for name in words[0].split(","):
            if not _PATTERN & set(name):
                marked = _MARKED.fullmatch(name)
                names.append((marked["host"], int(marked["port"])) if marked else (name, 0))
    return KnownHosts(tuple(dict.fromkeys(names)), hashed)
