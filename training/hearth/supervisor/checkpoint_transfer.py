"""The file server of a node, and the checkpoint that it brings from another node's.

The last node that trains leaves the newest checkpoint on its own disk. A node that lends again when
no other has the run's state in memory fetches it before it starts its ranks. The supervisors tell
each other only who has which checkpoint, and the port of its server.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from hearth.base.errors import HearthError
from hearth.base.interface import Peer, port_error
from hearth.supervisor.messages import NodeReport, file_key
from hearth.supervisor.spec import Spec
from hearth.transfer.checkpoints import (
    CheckpointServer,
    fetch,
    newest_name,
    remove_partial,
    step_of,
)

_MOMENT = 1_000_000_000
"""Nanoseconds within which the time of a folder may miss a change."""


class CheckpointTransfer:
    """Serves this node's checkpoints to the others of the run, and fetches theirs."""

    def __init__(self, spec: Spec) -> None:
        self._spec, self._secret = spec, file_key(spec.token)
        self._server: CheckpointServer | None = None
        self._fetching: asyncio.Future[str] | None = None
        self._changed, self._newest = -1, ""

    def open(self) -> None:
        """Start the file server at a port that the kernel picks.

        Raises `LaunchError` if that cannot be done.
        """
        spec = self._spec
        try:
            self._server = CheckpointServer(
                spec.address, self._secret, spec.addresses, spec.checkpoints
            )
        except OSError as error:
            raise port_error(spec.address, 0, error) from error
        self._server.start()

    async def close(self) -> None:
        """End the file server."""
        if self._server:
            await asyncio.to_thread(self._server.stop)

    @property
    def port(self) -> int:
        """The port of the file server."""
        return self._server.port if self._server else 0

    def newest(self) -> str:
        """Return the name of the newest checkpoint here, "" without one.

        The folder is listed only if it has changed, or did so a moment ago: its time is coarse.
        """
        try:
            changed = self._spec.checkpoints.stat().st_mtime_ns
        except OSError:
            return ""
        if changed != self._changed or time.time_ns() - changed < _MOMENT:
            self._changed, self._newest = changed, newest_name(self._spec.checkpoints)
        return self._newest

    def admit(self, address: str) -> None:
        """Answer programs of a node of the run that connect from this address, too."""
        if self._server:
            self._server.admit(address)

    async def bring(self, held: Mapping[str, NodeReport]) -> str:
        """Fetch the newest checkpoint that these reports name, if it is newer than those here.

        If that fails, fetch the next older one. Return a sentence on the result or the failure; ""
        if nothing is newer.
        """
        own = step_of(self.newest())
        newer = {node: each for node, each in held.items() if step_of(each.checkpoint) > own}
        idle = self._fetching is None or self._fetching.done()
        if not newer:
            if idle:
                with suppress(OSError):
                    await asyncio.to_thread(remove_partial, self._spec.checkpoints)
            return ""
        if idle:
            loop = asyncio.get_running_loop()
            self._fetching = loop.create_future()
            # No thread of the pool: the end of this process would wait for it.
            work = (loop, self._fetching, newer)
            threading.Thread(target=self._fetch_newest, args=work, daemon=True).start()
        assert self._fetching
        return await asyncio.shield(self._fetching)

    def _fetch_newest(
        self,
        loop: asyncio.AbstractEventLoop,
        result: asyncio.Future[str],
        held: Mapping[str, NodeReport],
    ) -> None:
        """Fetch the newest checkpoint that can be had, and hand the sentence on it to the loop."""
        said: list[str] = []
        for node in sorted(held, key=lambda node: step_of(held[node].checkpoint), reverse=True):
            name = held[node].checkpoint
            try:
                self._fetch(node, held[node])
            except (HearthError, OSError) as error:
                said.append(f"the checkpoint {name} of {node} could not be brought: {error}")
            else:
                said.append(f"brought the checkpoint {name} from {node}, which is away")
                break
        with suppress(RuntimeError):  # the loop has ended with the supervisor
            loop.call_soon_threadsafe(_settle, result, "; ".join(said))

    def _fetch(self, node: str, held: NodeReport) -> None:
        spec = self._spec
        giver = Peer(node, spec.addresses[spec.nodes.index(node)], held.serves)
        fetch(spec.checkpoints, held.checkpoint, giver, spec.address, self._secret)


def _settle(result: asyncio.Future[str], said: str) -> None:
    if not result.done():
        result.set_result(said)
