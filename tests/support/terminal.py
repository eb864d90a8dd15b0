"""A program at a real terminal: a pty that it controls, typed into and read as a person would."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from support.waiting import HANG

CTRL_C, CTRL_D = "\x03", "\x04"

_AGAIN = 2.0
"""A person presses a key again after these seconds."""

# Ctrl-C is ignored by whatever a shell begins in the background, these tests included.
_LEAD = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""
_COMMAND = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|[@-Z\\-_])")


class Terminal:
    """A terminal with a program in the foreground; with a `with`, it ends with the block.

    Attributes:
        text: the screen so far, without commands to the terminal.
    """

    def __init__(
        self, *words: object, cwd: Path, variables: Mapping[str, str], columns: int = 100
    ) -> None:
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LEAD, *map(str, words)],
            cwd=cwd,
            env={**variables, "TERM": "xterm"},
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(HANG)
        os.close(self._own)

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._own, keys.encode())

    def until(self, pattern: str, since: int = 0, press: str = "") -> int:
        """Wait until `pattern` is shown behind the place `since`; return the place behind it.

        Meanwhile `press` these keys again and again: Python's input() notices a Ctrl-C that comes
        just between two keys only with the next key.
        """
        end = time.monotonic() + HANG
        pressed = -_AGAIN
        raw = b""
        while not (found := re.compile(pattern).search(self.text, since)):
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.text}"
            if press and time.monotonic() > pressed + _AGAIN:
                self.type(press)
                pressed = time.monotonic()
            if select.select([self._own], [], [], 0.2)[0]:
                try:
                    raw += os.read(self._own, 65536)
                except OSError:  # the program has ended
                    raise AssertionError(f"no {pattern!r} in:\n{self.text}") from None
                try:
                    piece, raw = raw.decode(), b""
                except UnicodeDecodeError:
                    continue  # half a character
                self.text += _COMMAND.sub("", piece)
        return found.end()

    def ended(self) -> int:
        """Return the exit status of the program, which reads or writes no more."""
        return self.process.wait(HANG)
