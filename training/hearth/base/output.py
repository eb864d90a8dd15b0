"""The output of a program that goes to a log, whose disk may be full."""

from __future__ import annotations

import io
import sys

from hearth.base.files import DISK_FULL


class _Sparing(io.FileIO):
    """A file of which the writes that its disk does not take are dropped."""

    def write(self, content: bytes) -> int:  # type: ignore[override]
        """Write, or drop what the disk has no room for."""
        try:
            return super().write(content)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            return len(content)


def spare_output() -> None:
    """Let this process's output be dropped where the disk of its log is full or fails.

    Whatever is printed would end the process else.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        getattr(sys, name).flush()
        file = io.BufferedWriter(_Sparing(descriptor, "wb", closefd=False))
        stream = io.TextIOWrapper(file, "utf-8", "backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
