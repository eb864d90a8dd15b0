"""Progress on the controller's screen: one line drawn over, or without a terminal a few lines."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Protocol

# Evaluated where this is first imported, in Ansible's main process: the workers that run plugins
# have no terminal.
ON_TERMINAL = sys.stdout.isatty()
COLUMNS = shutil.get_terminal_size().columns

_CLEAR = "\r\x1b[K"
_SECONDS_BETWEEN_LINES = 10.0


class Display(Protocol):
    """Where text goes; Ansible's own display is one."""

    def display(self, msg: str, *, newline: bool = True, screen_only: bool = False) -> None:
        """Show a text."""


class Screen:
    """Shows how far something is."""

    def __init__(self, display: Display, live: bool | None = None) -> None:
        self._display = display
        self._live = ON_TERMINAL if live is None else live
        self._shown = ""
        self._at = -_SECONDS_BETWEEN_LINES
        self._tenth = 0

    def progress(self, text: str, tenth: int = 0) -> None:
        """Show how far it is; `tenth` tenths are done. Without a terminal only news are shown."""
        if text == self._shown:
            return
        if self._live:
            self._draw(text)
            self._shown = text
        elif tenth > self._tenth or time.monotonic() - self._at >= _SECONDS_BETWEEN_LINES:
            self.line(text)
            self._shown, self._at, self._tenth = text, time.monotonic(), tenth

    def line(self, text: str) -> None:
        """Print a line that stays."""
        self._display.display(f"{_CLEAR if self._live else ''}  {text}")

    def end(self) -> None:
        """Leave the line free for what comes next."""
        if self._live:
            self._display.display(_CLEAR, newline=False, screen_only=True)

    def _draw(self, text: str) -> None:
        text = text[: COLUMNS - 3]
        self._display.display(f"{_CLEAR}  {text}", newline=False, screen_only=True)
