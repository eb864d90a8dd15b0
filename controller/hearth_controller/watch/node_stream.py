"""A process on a node that reports a run's changes over one connection, restarted if it breaks."""

from __future__ import annotations

import json
import select
import time
from importlib import resources
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from hearth.base.slurm import queue_command
from hearth_controller.base.node_program import NodeProgram

_PROGRAM = resources.files("hearth.record").joinpath("stream.py").read_text(encoding="utf-8")
_WAIT, _PING = 1.0, 5.0
_STALLED = 30.0
"""Seconds without a byte after which the connection is given up and made anew."""
_LONGEST = 1 << 23
"""Bytes that a line may have; one of Hearth's has a tenth of it."""


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)
    place: Annotated[list[int], Field(min_length=2, max_length=2)]
    anew: bool
    behind: bool
    text: str


class _Change(BaseModel):
    """The fields of a change, as `hearth.record.stream` reports it."""

    model_config = ConfigDict(strict=True)
    record: dict[str, Any] | None = None
    alive: bool = False
    queue: tuple[int, str, str] | None = None
    metrics: _Part | None = None
    log: _Part | None = None


def _change_in(line: bytes) -> dict[str, Any]:
    """Return the change in a line. Raises `ConnectionError` if it is none."""
    try:
        _Change.model_validate_json(line)
        return json.loads(line)
    except ValueError as error:
        raise ConnectionError("the node sends something other than a run's changes") from error


class NodeStream:
    """The changes of a run on a node, as `hearth.record.stream` reports them.

    `connection` is Ansible's to the node, `python` a Python there (else `python3` is taken), and
    `files` are those of the request: the reported part is kept, so that a new connection goes on
    after it.

    Attributes:
        answered: when the program's last byte arrived (monotonic).
        error: why there is no connection, the last time that one broke.
    """

    def __init__(
        self,
        connection: Any,
        python: str,
        run: str,
        workspace: str,
        files: dict[str, int | None],
        interval: float = 1,
    ) -> None:
        self._connection, self._python = connection, python
        self._files = {name: {"place": None, "lines": lines} for name, lines in files.items()}
        self._request = {"run": run, "workspace": workspace, "interval": interval}
        self._request["queue"] = queue_command(run)
        self._program: NodeProgram | None = None
        self._half, self._pinged, self._connected = b"", 0.0, 0.0
        self.answered, self.error = time.monotonic(), ""

    @property
    def silent(self) -> float:
        """Seconds since the last byte."""
        return time.monotonic() - self.answered

    def read(self) -> list[dict[str, Any]]:
        """Return the changes that arrive within a second; connect first where that is needed."""
        began = time.monotonic()
        try:
            changes = self._read()
        except Exception as error:  # of Ansible's connection, too
            self.error = (self.close() or [str(error)])[-1]
            time.sleep(max(0.0, began + _WAIT - time.monotonic()))
            return []
        for change in changes:
            for name, kept in self._files.items():
                if more := change.get(name):
                    kept["place"] = more["place"]
        return changes

    def close(self) -> list[str]:
        """End the process on the node; return the lines of its errors."""
        program, self._program = self._program, None
        return program.close() if program else []

    def _read(self) -> list[dict[str, Any]]:
        program = self._program = self._program or self._start()
        if time.monotonic() - self._pinged > _PING:
            program.process.stdin.write(b"\n")
            self._pinged = time.monotonic()
        if not select.select([program.process.stdout], [], [], _WAIT)[0]:
            # A new connection has as long, however long the node was silent before.
            if min(self.silent, time.monotonic() - self._connected) > _STALLED:
                raise ConnectionError(f"no sign of life for {self.silent:.0f} s")
            return []
        data = program.read_once()
        if data is None:
            raise ConnectionError("the connection was closed")
        if data:
            self.answered = time.monotonic()
        *lines, self._half = (self._half + data).split(b"\n")
        if len(self._half) > _LONGEST:
            raise ConnectionError("the node sends a line without end")
        # What a login shell has left at work may say something of its own.
        return [_change_in(line) for line in lines if line.startswith(b"{")]

    def _start(self) -> NodeProgram:
        self._half, self._pinged = b"", time.monotonic()
        self._connected = self._pinged
        request = self._request | {"files": self._files}
        return NodeProgram(self._connection, self._python, _PROGRAM, request)
