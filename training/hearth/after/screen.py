"""Answers on the screen: in two columns that grow together, or one after the other."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hearth.after.answer import Answer
from hearth.base.text import aligned, plain

_NARROW = 80
"""Columns of a terminal below which answers stand one after the other."""

_REDRAW = 0.08  # seconds
_OTHER_SPACE = re.compile(r"[^\S\n\t]")
_NOTES = {"length": ", cut by --max-tokens", "interrupted": ", stopped"}


class Screen:
    """Shows answers on `console`, and what else there is to say."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def _wide(self) -> bool:
        """Whether two columns fit, on a terminal that can draw them anew."""
        console = self._console
        return console.is_terminal and not console.is_dumb_terminal and console.width >= _NARROW

    def say(self, text: str, style: str = "dim") -> None:
        """Print lines that are no answer."""
        self._console.print(Text(plain(text), style=style), soft_wrap=True)

    def pairs(self, rows: Sequence[tuple[str, str]]) -> None:
        """Print rows of a name and what it means, each as one line that can be copied."""
        for line in aligned(rows):
            self._console.print(Text(f"  {line}".rstrip()), soft_wrap=True)

    def show(self, answers: Sequence[Answer]) -> None:
        """Read all `answers` to their end and show them meanwhile; Ctrl-C ends them all."""
        if len(answers) > 1 and self._wide:
            self._side_by_side(answers)
        else:
            self._in_turn(answers)

    def _side_by_side(self, answers: Sequence[Answer]) -> None:
        # While it grows only the end of a long answer fits the screen; the whole follows below.
        rows = max(self._console.height - 6, 1)
        with (
            _closing(answers) as interrupted,
            Live(console=self._console, auto_refresh=False, transient=True) as live,
        ):
            drawn = 0.0
            while not interrupted() and (alive := [each for each in answers if each.end is None]):
                for answer in alive:
                    answer.read()
                if time.monotonic() - drawn > _REDRAW:
                    live.update(self._table(answers, rows), refresh=True)
                    drawn = time.monotonic()
        self._console.print(self._table(answers))

    def _table(self, answers: Sequence[Answer], rows: int | None = None) -> Table:
        """Return the answers side by side, with `rows` only that many of their last lines."""
        width = (self._console.width - 3) // len(answers)
        table = Table(box=box.MINIMAL, show_edge=False, padding=(0, 1), pad_edge=False)
        cells = []
        for answer in answers:
            table.add_column(answer.name, header_style="bold", width=width - 1)
            lines = Text(_clean(answer.text).strip()).wrap(self._console, width - 1)
            shown = Text("\n").join(lines[-rows:] if rows else lines)
            cells.append(Group(shown, Text(_note(answer), style="dim")))
        table.add_row(*cells)
        return table

    def _in_turn(self, answers: Sequence[Answer]) -> None:
        with _closing(answers) as interrupted:
            for answer in answers:
                if interrupted():
                    break
                if len(answers) > 1:
                    self._console.print(Text(answer.name, style="bold"))
                self._stream(answer, interrupted)

    def _stream(self, answer: Answer, interrupted: Callable[[], bool]) -> None:
        """Print an answer piece by piece; what is not printed of it yet follows at its end."""
        began = False
        try:
            for piece in answer:
                text = _clean(piece) if began else _clean(piece).lstrip()
                began = began or bool(text)
                self._console.print(Text(text), end="", soft_wrap=True)
                if interrupted():
                    break
        finally:
            answer.close()
            self._console.print(Text(("\n" if began else "") + _note(answer), style="dim"))


@contextmanager
def _closing(answers: Sequence[Answer]) -> Iterator[Callable[[], bool]]:
    """Close `answers` at the end; give a function that returns whether Ctrl-C was pressed.

    Ctrl-C raises no exception meanwhile: one that comes where threading or rich has just taken a
    lock leaves it taken for ever.
    """
    pressed = False

    def note(*_: object) -> None:
        nonlocal pressed
        pressed = True

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: pressed
    finally:
        for answer in answers:
            answer.close()
        signal.signal(signal.SIGINT, before)


def _note(answer: Answer) -> str:
    """Return the line below an answer: its length, speed and why it ended, if not by itself."""
    if answer.end is None:
        return ""
    rate = f", {answer.tokens / answer.seconds:.1f} tokens/s" if answer.seconds else ""
    none = "" if answer.text.strip() else ": it says nothing"
    return f"({answer.tokens} tokens{rate}{_NOTES.get(answer.end, none)})"


def _clean(text: str) -> str:
    """Return a model's text without commands to the terminal."""
    return plain(_OTHER_SPACE.sub(" ", text))
