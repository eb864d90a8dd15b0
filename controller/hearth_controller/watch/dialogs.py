"""The screens over `hearth watch`: a question, the log of a node, help."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import RichLog, Static

Begin = Callable[[str, Mapping[str, str], Callable[[str], object]], "asyncio.Task[Any]"]

_LINES = "200"
"""Last lines of a log to begin with."""

_HELP = """\
Keys
  q   leave; training continues
  s   stop the run, after a question
  l   log of the chosen node, with new lines as they come
  o   lend the chosen node, or keep it for its owner
  ↑ ↓ choose a node
  Tab move to what happened, to scroll it

Nodes
  state   training, evaluating, loading (the model), waiting (for other nodes),
          away (its owner uses it), left (the others train without it), lost
  share   part of the rows of a step, which follows the speed
  temp    of the graphics card or the processor
  memory  in use on the graphics cards; without one, the most that a rank used
  link    traffic of the network interface, looked up once a minute

Loss: the curve is training, ● is held-out data.
"""


class _Dialog(ModalScreen[str]):
    """A screen that Escape closes without an answer."""

    BINDINGS: ClassVar = [Binding("escape,q", "close", "close")]

    def action_close(self) -> None:
        """Close without an answer."""
        self.dismiss("")


class QuestionDialog(_Dialog):
    """A question; the result is the key of the answer, or ''."""

    def __init__(self, question: str, answers: Mapping[str, str]) -> None:
        super().__init__()
        self._question, self._answers = question, answers

    def compose(self) -> ComposeResult:
        """Show the question and the keys."""
        keys = {**self._answers, "Esc": "change nothing"}
        lines = [f"  {key:<4} {meaning}" for key, meaning in keys.items()]
        yield Static(Text("\n".join([self._question, "", *lines])), classes="dialog")

    def on_key(self, event: Key) -> None:
        """Take the key of an answer."""
        if event.key in self._answers:
            event.stop()
            self.dismiss(event.key)


class Help(_Dialog):
    """The keys and the columns."""

    def compose(self) -> ComposeResult:
        """Show the text."""
        yield Static(Text(_HELP.rstrip()), classes="dialog")


class NodeLog(_Dialog):
    """The log of a run on a node, followed until it is closed.

    `begin` starts a play in the background, with its words, and what takes its lines.
    """

    def __init__(self, begin: Begin, run: str, node: str) -> None:
        super().__init__()
        self._begin, self._run, self._node = begin, run, node
        self._following: asyncio.Task[Any] | None = None

    def compose(self) -> ComposeResult:
        """Show the lines."""
        lines = RichLog(id="log", wrap=True, markup=False)
        lines.border_title = f"log of {self._node} · Esc closes"
        yield lines

    def on_mount(self) -> None:
        """Begin to follow the log."""
        words = {"run": self._run, "nodes": self._node, "lines": _LINES, "follow": "on"}
        self._following = self._begin("logs", words, self.query_one(RichLog).write)

    def on_unmount(self) -> None:
        """End the play."""
        if self._following:
            self._following.cancel()
