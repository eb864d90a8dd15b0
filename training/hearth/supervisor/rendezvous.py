"""The address and port at which the ranks of a team meet."""

from __future__ import annotations

from collections.abc import Callable

from hearth.base.interface import free_port, random_port, source_towards
from hearth.supervisor.spec import Spec

LOOPBACK = "127.0.0.1"


def meeting_place(
    spec: Spec, nodes: tuple[str, ...], source: Callable[[str], str]
) -> tuple[str, int, tuple[str, ...]]:
    """Return address and port at which the ranks of a team meet, and who may connect to it.

    `source` returns the address from which a connected node's programs connect to the others.

    Raises:
        LaunchError: this node has no such address now.
        OSError: it does not reach the address, or has lost a node just now.
    """
    first = nodes[0]
    if nodes == (spec.node,):  # whose network, and address, may be what was lost
        return LOOPBACK, free_port(LOOPBACK), (LOOPBACK,)
    address = spec.addresses[spec.nodes.index(first)]
    port = free_port(address) if first == spec.node else random_port()
    clients = {source_towards(address)}
    for node in nodes:
        clients.add(spec.addresses[spec.nodes.index(node)])
        if node != spec.node:
            clients.add(source(node))
    return address, port, tuple(sorted(clients))
