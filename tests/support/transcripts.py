"""Transcripts in the pages: blocks that a command rewrites by playing them, and their shape.

A block stands between two comments and names the play that it shows, whole or in part:

    <!-- played: stop from "was stopped" -->
    ```
    …
    ```
    <!-- end -->
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_BLOCK = re.compile(
    r'(?P<head><!-- played: (?P<name>[\w-]+)(?: from "(?P<start>[^"]+)")?'
    r'(?: to "(?P<stop>[^"]+)")? -->\n)'
    r"```\n(?P<body>.*?)```\n<!-- end -->",
    re.DOTALL,
)
_DEEP = 12
"""A line with this many leading spaces continues the one before, such as an answer."""

_MANY = 8
"""Of lines that begin alike, a page shows the first and the last only."""


@dataclass(frozen=True)
class Block:
    """A transcript in a page; `start` and `stop` are texts of its first and last line, or ''."""

    name: str
    start: str
    stop: str
    body: str

    def part(self, screen: str) -> str:
        """Return the lines of a whole screen that this block shows, abridged.

        Raises `ValueError` if the first or the last of them is not there.
        """
        lines = screen.rstrip().splitlines()
        first = _index(lines, self.start, 0) if self.start else 0
        last = _index(lines, self.stop, first) if self.stop else len(lines) - 1
        return "\n".join(_abridged(lines[first : last + 1])) + "\n"


def blocks(page: str) -> list[Block]:
    """Return the transcripts of a page."""
    return [_block(found) for found in _BLOCK.finditer(page)]


def rewritten(page: str, screens: dict[str, str]) -> str:
    """Return the page with the transcripts of all plays in `screens` replaced.

    Raises `ValueError` if a screen lacks a line that a block begins or ends with.
    """

    def replace(found: re.Match[str]) -> str:
        block = _block(found)
        if block.name not in screens:
            return found[0]
        return f"{found['head']}```\n{block.part(screens[block.name])}```\n<!-- end -->"

    return _BLOCK.sub(replace, page)


def shape(screen: str) -> set[str]:
    """Return the beginnings of the lines of a screen, with numbers and names of runs masked.

    Two plays of the same command have this in common, whatever they trained and however
    long it took.
    """
    return {
        label
        for line in screen.splitlines()
        if len(line) - len(line.lstrip()) < _DEEP and (label := _label(line))
    }


def differences(shown: str, played: str, by_chance: Collection[str] = ()) -> list[str]:
    """Return the labels that only one of two screens has, but for those that come `by_chance`.

    `by_chance` are beginnings of labels.
    """
    found = []
    for side, one, other in (("page", shown, played), ("play", played, shown)):
        found += [
            f"only in the {side}: {label}"
            for label in sorted(shape(one) - shape(other))
            if not label.startswith(tuple(by_chance))
        ]
    return found


def _block(found: re.Match[str]) -> Block:
    return Block(found["name"], found["start"] or "", found["stop"] or "", found["body"])


def _index(lines: list[str], text: str, begin: int) -> int:
    """Return the number of the first line from `begin` on that has `text` in it."""
    for number in range(begin, len(lines)):
        if text in lines[number]:
            return number
    raise ValueError(f"no line of the play has {text!r}")


def _abridged(lines: list[str]) -> list[str]:
    """Return lines with those between the first and the last of many alike left out."""
    labels = [_label(line) for line in lines]
    kept: list[str] = []
    for number, (line, label) in enumerate(zip(lines, labels, strict=True)):
        first, last = labels.index(label), len(labels) - 1 - labels[::-1].index(label)
        if not label or labels.count(label) < _MANY or number in (first, last):
            kept.append(line)
        elif number == first + 1:
            kept.append(line[: len(line) - len(line.lstrip())] + "…")
    return kept


def _label(line: str) -> str:
    """Return the beginning of a line: a row's label, or the first words of a sentence."""
    text = re.sub(r"[\w.-]+-\d{8}-\d{6}\b", "RUN", line.strip())
    text = re.sub(r"\d[\d.,]*", "0", text)
    first = re.split(r"\s{2,}|[:·(=]", text)[0].strip()
    return " ".join(first.split()[:4]).removesuffix("…").strip()
