"""The text of a message: a title and a few lines, to be read on a phone at night. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from hearth.base.clock import when
from hearth.base.text import duration, plain
from hearth.notify.event import READY, Event
from hearth.record.story import Story

MOST_LINES = 6
"""Lines below the title."""

_LONGEST_ERROR, _LONGEST_LINE = 240, 400

_PATH = re.compile(r"(?<![\w.:/-])(?:~|\.{1,2})?/(?:[^\s/:;,'\"`()]+/)+(?=[^\s/:;,'\"`()])")
"""The folders of a path, which fill a phone; an address such as https://host/x has none."""

Colour = Literal["success", "failure", "warning", "info"]
"""Apprise's kind of a message, which some places show as a colour or a symbol."""


@dataclass(frozen=True)
class PhoneMessage:
    """A message to a person."""

    title: str
    lines: tuple[str, ...]
    colour: Colour

    @property
    def body(self) -> str:
        """The text below the title."""
        return "\n".join(self.lines)


def compose(event: Event, story: Story, explanation: Sequence[str] = ()) -> PhoneMessage:
    """Return the message for an event.

    `explanation` are the lines on cause and cure that the catalogue of errors has for it.
    """
    run, about = event.run, ", ".join(event.about)
    match event.kind:
        case "finished":
            return _message("success", f"{run} finished", _finished(event, story))
        case "failed":
            lines = [*_cause(event, explanation), _when_it_ended(event, story), _more(event)]
            return _message("failure", f"{run} failed on {about}", lines)
        case "stopped":
            lines = [_when_it_ended(event, story), _error(event)]
            return _message("warning", f"{run} was stopped", lines)
        case "apart":
            lines = [*_cause(event, explanation), _more(event)]
            return _message("warning", f"{run} goes on without {about}", lines)
        case "disk":
            why = f"Its disk takes none: {event.message}. Other nodes write them."
            return _message("warning", f"{run} goes on without checkpoints of {about}", [why])
        case "waiting":
            since = _joined(f"since {_clock(event.began, event)}", _so_far(event, story))
            lines = [since, _error(event), _outlook(event), _more(event)]
            return _message("warning", f"{run} waits for {about}", lines)
        case "slow_link":
            lines = [*event.message.splitlines(), _so_far(event, story), _more(event)]
            return _message("warning", f"{run} is slow: {about or 'its network'}", lines)
        case "back":
            are = "is" if len(event.about) == 1 else "are"
            lines = [_so_far(event, story), f"It had waited {_elapsed(event)}."]
            return _message("info", f"{run} goes on: {about} {are} back", lines)
        case "unreached":
            lines = [
                _error(event),
                "Nodes that do not reach each other train in no group together; they try again.",
                "hearth provision --tags firewall lets the nodes in.",
            ]
            return _message("warning", f"{run}: {about} cannot be reached", lines)


def _message(colour: Colour, title: str, lines: Iterable[str]) -> PhoneMessage:
    """Return the message of the lines that say anything, each of a length that a phone shows."""
    short = (_shortened(plain(line), _LONGEST_LINE) for line in lines)
    return PhoneMessage(plain(title), tuple(line for line in short if line)[:MOST_LINES], colour)


def _finished(event: Event, story: Story) -> list[str]:
    """Return the lines of a run that has finished."""
    seconds = story.length if story.ended and story.length else event.at - event.began
    what = event.script or f"{story.step} of {story.steps} steps"
    nodes = story.present or event.nodes
    without = [node for node in event.nodes if node not in nodes]
    early = f"ended early: {story.reason}" if story.reason else ""
    return [
        f"{what} in {duration(seconds)}",
        f"on {', '.join(nodes)}" + (f"; at the end without {', '.join(without)}" * bool(without)),
        _perplexity(story),
        early,
    ]


def _perplexity(story: Story) -> str:
    """Return the line on held-out data, '' if it was not evaluated."""
    before, after = story.accuracy
    if before is not None and after is not None:
        return f"held-out preferences judged rightly {before:.0%} → {after:.0%}"
    before, after = story.perplexity
    if before and after:
        return f"held-out perplexity {before:.2f} → {after:.2f} ({after / before - 1:+.0%})"
    return f"held-out perplexity {after:.2f}" if after else ""


def _when_it_ended(event: Event, story: Story) -> str:
    """Return the line with the steps of a run and the time that they took."""
    began = event.began
    if story.began:  # else a run that was resumed did all its steps since then
        began = min(began, story.began.timestamp())
    elapsed = duration(max(0.0, event.at - began))
    return _joined(_so_far(event, story), f"{elapsed} after its start")


def _so_far(event: Event, story: Story) -> str:
    """Return the steps done so far; not every node has them on record, and no script tells any."""
    if event.script:
        return event.script
    if story.steps:
        return f"{story.step} of {story.steps} steps done"
    return "" if event.begun else "before its first step"


def _joined(*parts: str) -> str:
    """Join the parts of a line that say anything."""
    return ", ".join(filter(None, parts))


def _elapsed(event: Event) -> str:
    return duration(max(0.0, event.at - event.began))


def _cause(event: Event, explanation: Sequence[str]) -> list[str]:
    """Return the lines on cause and cure; below them the error that they explain, if they do."""
    known = len(explanation) > 1
    return [*explanation, _error(event)] if known else [_error(event), *explanation]


def _error(event: Event) -> str:
    """Return the recorded cause as one line, with paths by their name."""
    text = _PATH.sub("", plain(event.message))
    return _shortened(text, _LONGEST_ERROR if event.by_rank else _LONGEST_LINE)


def _shortened(text: str, longest: int) -> str:
    """Return one line of at most `longest` characters, without its middle if it is longer.

    An error of Hearth's own begins with its cause and ends with its cure.
    """
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    head = textwrap.shorten(line, longest // 2, placeholder="") or line[: longest // 2]
    tail = line[-(longest - longest // 2 - 3) :]
    return f"{head} … {tail.partition(' ')[2] or tail}"


def _outlook(event: Event) -> str:
    """Return the line on the end of a wait, which needs no action."""
    back = "it is" if len(event.about) == 1 else "they are"
    if not event.ends:
        return f"It goes on by itself once {back} back."
    ends = f", and gives up at {_clock(event.ends, event)} at the latest ({event.limit})"
    if event.answering:
        ends += (
            f", or {duration(event.answering)} after the machine answers without a supervisor of "
            f"the run ({READY})"
        )
    return f"It goes on by itself once {back} back{ends}."


def _more(event: Event) -> str:
    """Return the command that shows more."""
    node = f" --nodes {event.about[0]}" if event.kind in ("failed", "apart") else ""
    return f"more: {event.hearth} logs {event.run}{node}"


def _clock(seconds: float, event: Event) -> str:
    """Return a time where this node is, as a person reads it at the time of the event."""
    at, now = (datetime.fromtimestamp(each).astimezone() for each in (seconds, event.at))
    return when(at, now)
