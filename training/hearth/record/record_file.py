"""The file of a run's record: lines that a full disk does not take wait until it does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hearth.base.files import write_whole

RECORD = "the record"
"""Name of the record among the files that a rank writes."""


class RecordFile:
    """Lines that are appended to a file, each of them whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._size = 0
        self._waiting: list[str] = []
        self._replacement: str | None = None

    def replace(self, text: str) -> None:
        """Let `text` be the content, instead of all lines so far; see `flush`."""
        self._shut()
        self._replacement, self._waiting = text, []
        self.flush()

    def add(self, lines: str) -> None:
        """Append whole lines; see `flush`."""
        self._waiting.append(lines)
        self.flush()

    def flush(self) -> None:
        """Write what waits.

        Raises `OSError` if the disk does not take it: it goes on to wait, and no part is written.
        """
        if self._replacement is not None:
            write_whole(self._path, self._replacement, synced=True)
            self._replacement = None
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o666)
            self._size = os.fstat(self._descriptor).st_size
        content = "".join(self._waiting).encode()
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)
        self._waiting = []

    def text(self) -> str:
        """Return the whole content, what waits included."""
        known = self._replacement
        if known is None:
            known = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        return known + "".join(self._waiting)

    def sync(self) -> None:
        """Write what waits, and have it on the disk. Raises `OSError`, as `flush` does."""
        self.flush()
        assert self._descriptor is not None
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Write what waits, and close the file. Raises `OSError`, as `flush` does."""
        try:
            if self._waiting or self._replacement is not None:
                self.flush()
        finally:
            self._shut()

    def _shut(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
