"""Whether the nodes of a run can connect to each other on the very ports that it will use.

All nodes ask at the same time: each listens on its own port and connects to those of the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address

from hearth.base.interface import Peer, port_error, reason
from hearth.base.packet_filter import listening
from hearth.node.pairs import CONNECT

SILENCE = 2 * CONNECT
"""Seconds without any answer after which a port is taken for closed by a firewall."""

PATIENCE = 30.0
"""Seconds in which a slower machine has to begin to listen. Until then it refuses."""

RETRY = 0.2


def ask(own: str, peers: Sequence[Peer], patience: float = PATIENCE) -> dict[str, str]:
    """Return by name of the peer the reason why it does not answer on its port.

    `peers` are all nodes, `own` among them, on whose port this node answers meanwhile.

    Raises `LaunchError` if this node cannot listen on its port.
    """
    return asyncio.run(_ask(own, peers, patience))


async def _ask(own: str, peers: Sequence[Peer], patience: float) -> dict[str, str]:
    here = next(peer for peer in peers if peer.name == own)
    others = [peer for peer in peers if peer.name != own]
    missing = {str(ip_address(peer.address)) for peer in others}
    complete = asyncio.Event()

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        missing.discard((writer.get_extra_info("peername") or ("",))[0])
        writer.close()
        if not missing:
            complete.set()

    try:
        listener = listening(here.address, here.port, [peer.address for peer in others])
    except OSError as error:
        raise port_error(here.address, here.port, error) from error
    async with await asyncio.start_server(note, sock=listener):
        reasons = await asyncio.gather(*(_reach(here, peer, patience) for peer in others))
        # All that can be reached are at it by now; whoever is kept out does not come later.
        with suppress(TimeoutError):
            await asyncio.wait_for(complete.wait(), SILENCE)
    return {peer.name: why for peer, why in zip(others, reasons, strict=True) if why}


async def _reach(here: Peer, peer: Peer, patience: float) -> str:
    """Return the reason why a peer does not answer on its port, or ''."""
    until = time.monotonic() + patience
    while True:
        try:
            async with asyncio.timeout(SILENCE):
                _, writer = await asyncio.open_connection(
                    peer.address, peer.port, local_addr=(here.address, 0)
                )
        except OSError as error:
            if isinstance(error, TimeoutError) or time.monotonic() > until:
                return reason(error)
            await asyncio.sleep(RETRY)
        else:
            writer.close()
            return ""
