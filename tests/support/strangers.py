"""Connections to a listening socket from an address of the loopback network."""

from __future__ import annotations

import socket


def answers(place: tuple[str, int], source: str) -> bool:
    """Return whether a connection from `source` to `place` is answered within a moment."""
    try:
        socket.create_connection(place, 1, source_address=(source, 0)).close()
    except TimeoutError:
        return False
    return True
