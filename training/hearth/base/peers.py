"""Another node that listens, and the reason why a connection to it failed."""

from __future__ import annotations

import errno
from dataclasses import dataclass

_NO_WAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}


@dataclass(frozen=True)
class Peer:
    """A node that listens; peers are in rank order."""

    name: str
    address: str
    port: int


def reason(error: Exception) -> str:
    """Describe in a few words why a peer did not answer, with the likely cause."""
    if isinstance(error, TimeoutError):
        return "no answer on TCP (firewall?)"
    if isinstance(error, ConnectionRefusedError):
        return "refused on TCP (firewall?)"
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return "no way there (cable, address or firewall?)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it hung up (firewall?)"
