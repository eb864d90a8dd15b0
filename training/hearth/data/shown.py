"""Examples as they are trained, decoded token by token: for a terminal and the record of a run."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

if TYPE_CHECKING:  # the controller shows examples, and has no package to read data with
    from hearth.data.rows import Document, Rows

_LONGEST = 120
"""Tokens of a stretch that are shown; of a longer one the beginning and the end are."""

_VISIBLE = {code: chr(0x2400 + code) for code in range(32)} | {0x7F: "␡", 10: "⏎", 9: "⇥"}
"""Signs for control characters, which could command the terminal."""

_READ = "  ", "\x1b[2m"


@dataclass(frozen=True)
class Stretch:
    """Consecutive tokens of an example, decoded, that carry loss or do not.

    A token that is a part of a character stands with the others of it.
    """

    learned: bool
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """An example as it is trained: its place in the data, and its tokens in stretches.

    Of preferences it is one answer, and `side` says which (see `Document`).
    """

    source: str
    tokens: int
    learned: int
    stretches: tuple[Stretch, ...]
    side: str = ""


def record_of(example: Shown) -> dict[str, Any]:
    """Return an example for the record of a run: its source, and its stretches as texts."""
    side = {"side": example.side} if example.side else {}
    return side | {
        "source": example.source,
        "stretches": [
            {"learned": each.learned, "text": "".join(_shortened(each.tokens))}
            for each in example.stretches
        ],
    }


def lines_of(example: Shown, number: int, colour: bool, width: int | None = None) -> list[str]:
    """Return an example as lines for a terminal: a stretch a paragraph, `▌` before learned ones.

    Tokens are divided by `·`. With `colour` learned stretches are green, and the rest is faint; a
    rejected answer is red, and its question, that of the chosen one, is not repeated.
    """
    width = width or shutil.get_terminal_size().columns
    counts = f"{example.tokens} tokens, {example.learned} learned"
    side = f", {example.side}" if example.side else ""
    lines = textwrap.wrap(f"example {number}{side}: {example.source}, {counts}", width)
    bad = example.side in ("rejected", "to avoid")
    for place, stretch in enumerate(example.stretches):
        tokens = [token.translate(_VISIBLE) for token in _shortened(stretch.tokens)]
        if example.side == "rejected" and not place and not stretch.learned:
            tokens = ["(the same question)"]
        mark, style = ("▌ ", "\x1b[31m" if bad else "\x1b[32m") if stretch.learned else _READ
        for line in _wrapped(tokens, max(20, width - 4)):
            lines.append(f"  {mark}{style}{line}\x1b[0m" if colour else f"  {mark}{line}")
    return lines


def _wrapped(tokens: Sequence[str], width: int) -> list[str]:
    """Return `tokens` with `·` between them in lines of `width`; a longer token has one alone."""
    lines = [""]
    for place, token in enumerate(tokens):
        piece = token + "·" * (place + 1 < len(tokens))
        if lines[-1] and _cells(lines[-1] + piece) > width:
            lines.append("")
        lines[-1] += piece
    return lines


def _cells(text: str) -> int:
    """Return the columns of a terminal that `text` takes."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in text)


def _shortened(tokens: Sequence[str]) -> list[str]:
    """Return `tokens` without the middle of a long stretch, whose size stands in its place."""
    if len(tokens) <= _LONGEST:
        return list(tokens)
    half = _LONGEST // 2
    return [*tokens[:half], f" … {len(tokens) - 2 * half} tokens … ", *tokens[-half:]]


def shown(tokenizer: Any, document: Document) -> Shown:
    """Return `document` with its tokens decoded."""
    ids, learned = document.ids.tolist(), document.learned.tolist()
    stretches = tuple(
        Stretch(flag, _decoded(tokenizer, [token for token, _ in each]))
        for flag, each in groupby(zip(ids, learned, strict=True), itemgetter(1))
    )
    return Shown(document.source, len(ids), sum(learned), stretches, document.side)


def first_examples(tokenizer: Any, rows: Rows, count: int) -> list[Shown]:
    """Return the first `count` examples of `rows` as they are trained, in the order of the data.

    A pair is two: its chosen and its rejected answer.
    """
    return [shown(tokenizer, document) for document in rows.documents(count)]


def _decoded(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Return `ids` as texts, one a token; tokens that make one character together are one text."""
    texts, pending = list[str](), list[int]()
    for token in ids:
        pending.append(token)
        text = tokenizer.decode(pending, clean_up_tokenization_spaces=False)
        if not text.endswith("\ufffd") or len(pending) == 4:  # a character has four bytes at most
            texts.append(text)
            pending = []
    if pending:
        texts.append(tokenizer.decode(pending, clean_up_tokenization_spaces=False))
    return tuple(texts)
