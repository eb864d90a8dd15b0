"""`hearth status --serve`: the live page, served until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

from hearth_controller.watch.child import Checkout
from hearth_controller.watch.gathering import Gathering
from hearth_controller.watch.server import PageServer

_SECONDS = 60.0
"""Seconds for a page; several that are drawn at once wait for each other."""


async def serve(checkout: Checkout, address: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the live page at an address of this computer until this is cancelled, or SIGTERM.

    Raises `HearthError` if this computer cannot listen there.
    """
    loop = asyncio.get_running_loop()
    gathering = Gathering(checkout, checkout.repository / "runs")

    async def drawn(name: str) -> str | None:
        """Draw in the loop, so that no event comes in meanwhile."""
        return gathering.page(name)

    def page(name: str) -> str | None:
        """Return a page for a thread of the server."""
        return asyncio.run_coroutine_threadsafe(drawn(name), loop).result(_SECONDS)

    server = PageServer(address, port, page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"{server.url}  (Ctrl-C ends it; training continues)")
    work = asyncio.ensure_future(gathering.gather())
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
