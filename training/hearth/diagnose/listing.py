"""The catalogue of known errors as a Markdown page."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import shorten

from hearth.diagnose.catalogue import ErrorSample, KnownError, sections

_WIDTH = 160
"""Longer lines of a sample are shortened, so that the page stays readable."""


def page(word: str = "") -> str:
    """Return the entries that contain `word` in any case, or all, by heading; '' if none does."""
    return "\n".join(_lines(word.casefold()))


def _lines(word: str) -> Iterator[str]:
    for heading, entries in sections().items():
        found = ["\n".join(_entry(entry)) for entry in entries]
        found = [text for text in found if word in text.casefold()]
        if found:
            yield from [f"## {heading}\n", *found]


def _entry(entry: KnownError) -> Iterator[str]:
    yield f"### {entry.id}\n"
    yield from ["```text", *sample_lines(entry.seen[0]), "```\n"]
    yield f"{entry.cause} **Cure:** {entry.cure}\n"


def sample_lines(sample: ErrorSample) -> list[str]:
    """Return the lines of an error text, long ones shortened."""
    lines = [*sample.text.splitlines(), *([f"kernel: {sample.kernel}"] if sample.kernel else [])]
    return [shorten(line, _WIDTH, placeholder=" …") for line in lines]
