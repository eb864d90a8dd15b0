"""HTTP client that fetches pieces from the node before this one, with fallbacks.

A node that is silent or sends corrupt pieces is skipped, so the chain closes around it without
a coordinator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

from hearth.base.errors import SupplyError
from hearth.transfer.pieces import Table, checksum
from hearth.transfer.serving import proof
from hearth.verify.pairs import Peer, reason

CONNECT = 4.0
"""Connect timeout in seconds: twice the cost of a lost packet."""

SILENCE = 8.0
"""Read timeout in seconds on an open connection."""

STARTING = 20.0
"""Seconds in which a node that has never answered may still be starting."""

PATIENCE = 60.0
"""Timeout in seconds for new pieces from a node that answers."""

_TRIES = 2
_RETRY = 0.3
_PAUSE = 0.1


class _NotYetError(Exception):
    """The upstream node answers, but has not received the piece yet."""


class Asking:
    """Connection to the nearest usable upstream node.

    Args:
        address: this node's, used as the source address.
        givers: upstream nodes, nearest first, the sender last.
        secret: of this call.
        lost: callback for an upstream node that was given up: its `name` and `why`.
    """

    def __init__(
        self,
        address: str,
        givers: Sequence[Peer],
        secret: str,
        lost: Callable[[dict[str, str]], None],
    ) -> None:
        self._address, self._givers, self._secret = address, list(givers), secret
        self._tell = lost
        self._why: list[str] = []
        self._line: HTTPConnection | None = None
        self._begin_anew()

    @property
    def giver(self) -> str:
        """The name of the current upstream node."""
        return self._givers[0].name

    def table(self, digest: str) -> Table:
        """Return the table with this checksum.

        Raises `SupplyError` if no upstream node provides it.
        """
        return Table.of(self._ask("/table", digest, "the table of what is sent").decode())

    def piece(self, path: str, digest: str, what: str) -> bytes:
        """Return the piece at `path`, verified by its checksum; errors call it `what`.

        Raises `SupplyError` if no upstream node provides it.
        """
        return self._ask(f"/piece/{path}", digest, what)

    def close(self) -> None:
        """Close the connection."""
        if self._line:
            self._line.close()
            self._line = None

    def _ask(self, path: str, digest: str, what: str) -> bytes:
        since = time.monotonic()
        while True:
            giver = self._givers[0]
            try:
                body = self._answer(giver, path)
            except _NotYetError:
                self._heard, self._failures = True, 0
                time.sleep(_PAUSE)
                if time.monotonic() - since > PATIENCE:
                    self._drop(giver, f"had nothing new for {PATIENCE:g} s")
                    since = time.monotonic()
            except (OSError, HTTPException) as error:
                self.close()
                self._failed(giver, error)
            else:
                self._heard, self._failures = True, 0
                if checksum(body) == digest:
                    return body
                self.close()
                self._drop(giver, f"gave {what} with a wrong checksum: test its memory and disk")

    def _answer(self, giver: Peer, path: str) -> bytes:
        """Send one request. Raises OSError or HTTPException if no complete answer comes."""
        if self._line is None:
            self._line = HTTPConnection(
                giver.address, giver.port, timeout=CONNECT, source_address=(self._address, 0)
            )
            self._line.connect()
            self._line.sock.settimeout(SILENCE)
        self._line.request("GET", path, headers={"Authorization": proof(self._secret, path)})
        answer = self._line.getresponse()
        body = answer.read()
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise _NotYetError
        if answer.status != HTTPStatus.OK:
            raise HTTPException(f"it answers {answer.status} {answer.reason}")
        return body

    def _failed(self, giver: Peer, error: Exception) -> None:
        """Retry the upstream node later, or switch to the next one after too many failures."""
        self._failures += 1
        young = not self._heard and time.monotonic() - self._since < STARTING
        if young or self._failures < _TRIES:
            time.sleep(_RETRY)
        else:
            self._drop(giver, reason(error) if isinstance(error, OSError) else str(error))

    def _drop(self, giver: Peer, why: str) -> None:
        """Switch to the upstream node before this one.

        Raises `SupplyError` if there is none.
        """
        self._why.append(f"{giver.name}: {why}")
        if len(self._givers) == 1:
            raise SupplyError(
                f"nobody is left to get it from ({'; '.join(self._why)}); what has arrived is "
                "kept, and the same command goes on from there"
            )
        del self._givers[0]
        self._tell({"name": giver.name, "why": why})
        self.close()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._heard, self._failures, self._since = False, 0, time.monotonic()
