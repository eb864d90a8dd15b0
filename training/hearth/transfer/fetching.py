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
from hearth.base.interface import Peer, reason
from hearth.base.json_lines import same
from hearth.base.text import plain
from hearth.transfer.holding import Holding
from hearth.transfer.pieces import PIECE, Table, checksum
from hearth.transfer.serving import PROOF, answer_proof, proof

CONNECT = 4.0
"""Connect timeout in seconds: twice the cost of a lost packet."""

SILENCE = 8.0
"""Read timeout in seconds on an open connection."""

STARTING = 20.0
"""Seconds until a node without an answer so far no longer counts as starting."""

PATIENCE = 60.0
"""Timeout in seconds for new pieces from a node that answers."""

LONGEST_TABLE = 64 << 20
"""Bytes of a table at most: that of 2 TB."""

_TRIES = 2
_RETRY = 0.3
_PAUSE = 0.1


class _NotYetError(Exception):
    """The upstream node answers, but has not received the piece yet."""


class FileClient:
    """Connection to the nearest usable upstream node.

    Args:
        address: this node's, used as the source address.
        givers: upstream nodes, nearest first, the sender last.
        secret: of the call or the run.
        lost: callback for an upstream node that was given up: its `name` and `why`.
        name: of the files on the upstream nodes, "" for those of a call.
        patience: seconds to wait for something new from a node that answers.
        starting: seconds until a node without an answer so far no longer counts as starting.
    """

    def __init__(
        self,
        address: str,
        givers: Sequence[Peer],
        secret: str,
        lost: Callable[[dict[str, str]], None],
        name: str = "",
        patience: float = PATIENCE,
        starting: float = STARTING,
    ) -> None:
        self._address, self._givers, self._secret = address, list(givers), secret
        self._tell = lost
        self._base = f"/{name}" if name else ""
        self._patience, self._starting = patience, starting
        self._why: list[str] = []
        self._line: HTTPConnection | None = None
        self._begin_anew()

    @property
    def giver(self) -> str:
        """The name of the current upstream node."""
        return self._givers[0].name

    def table(self, digest: str = "") -> Table:
        """Return the table with this checksum; without one, the proved table of the node.

        Raises `SupplyError` if no upstream node provides it.
        """
        path, what = f"{self._base}/table", "the table of what is sent"
        return Table.of(self._ask(path, digest, what, LONGEST_TABLE))

    def piece(self, path: str, digest: str, what: str) -> bytes:
        """Return the piece at `path`, verified by its checksum; errors call it `what`.

        Raises `SupplyError` if no upstream node provides it.
        """
        return self._ask(f"{self._base}/piece/{path}", digest, what, PIECE)

    def fill(self, holding: Holding, arrived: Callable[[int], None] = lambda _: None) -> None:
        """Fetch the missing pieces of `holding`; tell `arrived` the bytes of each.

        Raises `SupplyError` if no upstream node provides one.
        """
        for number, piece in holding.missing():
            file = holding.item.files[number]
            what = f"piece {piece + 1} of {len(file.pieces)} of {file.name}"
            path = f"{holding.item.key}/{number}/{piece}"
            data = self.piece(path, file.pieces[piece], what)
            holding.add(number, data)
            arrived(len(data))

    def close(self) -> None:
        """Close the connection."""
        if self._line:
            self._line.close()
            self._line = None

    def _ask(self, path: str, digest: str, what: str, most: int) -> bytes:
        since = time.monotonic()
        while True:
            giver = self._givers[0]
            try:
                body, proved = self._answer(giver, path, most)
            except _NotYetError:
                self._heard, self._failures = True, 0
                time.sleep(_PAUSE)
                if time.monotonic() - since > self._patience:
                    self._drop(giver, f"had nothing new for {self._patience:g} s")
                    since = time.monotonic()
            except (OSError, HTTPException, ValueError) as error:
                self.close()
                self._failed(giver, error)
            else:
                self._heard, self._failures = True, 0
                if checksum(body) == digest if digest else proved:
                    return body
                self.close()
                self._drop(giver, f"gave {what} with a wrong checksum: test its memory and disk")

    def _answer(self, giver: Peer, path: str, most: int) -> tuple[bytes, bool]:
        """Send one request; return the answer, and whether it has a valid proof.

        Raises OSError, HTTPException or ValueError if no complete answer comes, or another one.
        """
        if self._line is None:
            self._line = HTTPConnection(
                giver.address, giver.port, timeout=CONNECT, source_address=(self._address, 0)
            )
            self._line.connect()
            self._line.sock.settimeout(SILENCE)
        self._line.request("GET", path, headers={"Authorization": proof(self._secret, path)})
        answer = self._line.getresponse()
        if answer.status == HTTPStatus.OK:
            body = answer.read(most + 1)
            if len(body) > most:
                raise HTTPException(f"it sends more than {most} bytes")
            if answer.length:
                raise HTTPException("it hung up in the middle of an answer")
            given = answer.headers.get(PROOF, "")
            return body, same(given, answer_proof(self._secret, path, body))
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE and not answer.read(1):
            raise _NotYetError
        raise HTTPException(f"it answers {answer.status} {plain(answer.reason)}")

    def _failed(self, giver: Peer, error: Exception) -> None:
        """Retry the upstream node later, or switch to the next one after too many failures."""
        self._failures += 1
        young = not self._heard and time.monotonic() - self._since < self._starting
        if young or self._failures < _TRIES:
            time.sleep(_RETRY)
        else:
            self._drop(giver, reason(error) if isinstance(error, OSError) else plain(str(error)))

    def _drop(self, giver: Peer, why: str) -> None:
        """Switch to the upstream node before this one.

        Raises `SupplyError` if there is none.
        """
        self._why.append(f"{giver.name}: {why}")
        if len(self._givers) == 1:
            raise SupplyError(
                f"no node is left to get it from ({'; '.join(self._why)}); what has arrived is "
                "kept, and the next attempt goes on from there"
            )
        del self._givers[0]
        self._tell({"name": giver.name, "why": why})
        self.close()
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._heard, self._failures, self._since = False, 0, time.monotonic()
