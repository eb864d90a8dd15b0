"""Progress on the controller's screen: one redrawn line, or a few lines without a terminal."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import Protocol

from hearth.base.text import duration, folded, plain
from hearth_controller.base.pulse import SILENCE

# Evaluated on import in Ansible's main process, because the worker processes that run plugins have
# no terminal.
ON_TERMINAL = sys.stdout.isatty()
COLUMNS = shutil.get_terminal_size().columns
TABLE_WIDTH = (COLUMNS if ON_TERMINAL or "COLUMNS" in os.environ else 120) - 2
"""Columns for a table, which is shown indented by two. `hearth` shows some of them itself, and
tells the play its terminal's width by COLUMNS."""

_CLEAR = "\r\x1b[K"
_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """An output for text, such as Ansible's own display."""

    def display(self, msg: str, *, newline: bool = True, screen_only: bool = False) -> None:
        """Show a text."""


class Screen:
    """Shows the progress of a task."""

    def __init__(self, display: Display, live: bool | None = None) -> None:
        self._display = display
        self._live = ON_TERMINAL if live is None else live
        self._shown = self._newest = ""
        self._since = self._said = time.monotonic()
        self._at = -_SECONDS_BETWEEN_LINES
        self._tenth = 0

    def progress(self, text: str, tenth: int = 0) -> None:
        """Show the progress, `tenth` tenths. Without a terminal, only changes are shown."""
        if text != self._newest:
            self._newest, self._since = text, time.monotonic()
        if text == self._shown:
            return
        if self._live:
            self._draw(text)
            self._shown, self._said = text, time.monotonic()
        elif tenth > self._tenth or time.monotonic() - self._at >= _SECONDS_BETWEEN_LINES:
            self.line(text)
            self._shown, self._at, self._tenth = text, time.monotonic(), tenth

    def still(self) -> None:
        """Show progress that was held back, or for how long it is the same, after a silence."""
        now = time.monotonic()
        if not self._newest or now - self._said < SILENCE:
            return
        text = self._newest
        if text == self._shown:
            text += f": {duration(now - self._since)} …"
        if self._live:
            self._draw(text)
            self._said = now
        else:
            self.line(text)
            self._shown, self._at = self._newest, now

    def line(self, text: str) -> None:
        """Print a permanent line."""
        self._said = time.monotonic()
        text = f"  {plain(text)}"
        self._display.display(_CLEAR + folded(text, COLUMNS) if self._live else text)

    def end(self) -> None:
        """Clear the progress line for further output."""
        if self._live:
            self._display.display(_CLEAR, newline=False, screen_only=True)

    def _draw(self, text: str) -> None:
        text = plain(text)[: COLUMNS - 3]
        self._display.display(f"{_CLEAR}  {text}", newline=False, screen_only=True)
