"""Text for messages: durations, byte counts, switches, aligned tables, text of strangers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from hearth.base.addresses import without_credentials

NOT_KNOWN = "–"
"""Placeholder in a table for an unknown value."""

_GAP = "  "

_LONGEST = 100
"""Characters of a value in a message; a longer one was pasted."""

# A terminal's commands: colours, movements, titles.
_COMMAND = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


def plain(text: str) -> str:
    """Return a text of any origin without control characters other than line ends and tabs.

    An error, a file name or a node's answer could otherwise command the terminal that shows it.
    """
    if text.isprintable():
        return text
    return "".join(c for c in _COMMAND.sub("", text) if c.isprintable() or c in "\n\t")


def brief(error: Exception) -> str:
    """Return a library's error, which may go on for a page, as at most 200 characters of a line."""
    return brief_text(str(error)) or type(error).__name__


def brief_text(text: str) -> str:
    """Return a text of any length as at most 200 characters of a line, without credentials."""
    # Hidden first: a credential that is cut in half is no longer recognised.
    return textwrap.shorten(without_credentials(text), 200, placeholder=" …")


def cut(value: str) -> str:
    """Return a value for a message; of a long one only its beginning, and its length."""
    if len(value) <= _LONGEST:
        return value
    return f"{value[:_LONGEST]}… ({len(value):,} characters)"


def counted(count: int, thing: str) -> str:
    """Return a number of things, such as `1 row` or `2 rows`."""
    return f"{count} {thing}{'s' * (count != 1)}"


def listed(names: Iterable[str], most: int = 5) -> str:
    """Format names as a sorted list: the first `most` and the number of the others."""
    known = sorted(names)
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest


def duration(seconds: float) -> str:
    """Format a duration for people: 45 s, 3 min 20 s, 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def byte_count(count: float) -> str:
    """Format a number of bytes for people: 512 B, 33.6 MB, 1.2 GB."""
    if count < 1000:
        return f"{count:.0f} B"
    unit = "kB"
    for larger in ("MB", "GB", "TB"):
        if count < 999_950:
            break
        count, unit = count / 1000, larger
    return f"{count / 1000:.1f} {unit}"


def link_speed(mbit: float | None) -> str:
    """Format a link's speed: `940 Mbit/s`, `9.4 Gbit/s`, or – if unknown."""
    if mbit is None:
        return "–"
    return f"{mbit / 1000:.1f} Gbit/s" if mbit >= 1000 else f"{mbit:.0f} Mbit/s"


def card_memory(mebibytes: int) -> str:
    """Format a GPU's memory as it is sold, in whole GB."""
    return f"{round(mebibytes / 1024)} GB"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns; the first row holds the titles.

    A column whose first cell begins with a digit is right-aligned.
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [cell[:1].isdecimal() for cell in (rows[1] if len(rows) > 1 else rows[0])]
    return [
        _GAP.join(
            f"{text:>{width}}" if number else f"{text:<{width}}"
            for text, width, number in zip(row, wide, right, strict=True)
        )
        for row in rows
    ]


def wrapped(text: str, columns: int, indent: str = "") -> list[str]:
    """Wrap a line to at most `columns`, lines after the first with this indent.

    Commands are not broken at hyphens; a word is broken only if it does not fit on a line.
    """
    own = text[: len(text) - len(text.lstrip())]
    if len(text) <= columns:
        return [text]
    width = max(columns, len(own + indent) + 10)
    return textwrap.wrap(
        text.strip(),
        width,
        initial_indent=own,
        subsequent_indent=own + indent,
        break_on_hyphens=False,
    )


def folded(text: str, columns: int) -> str:
    """Wrap each line of a text to at most `columns`; a terminal would break words."""
    lines = text.split("\n")
    return "\n".join(part for line in lines for part in wrapped(line, columns, "    "))


def fitted(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Format rows as `aligned` does, in lines of at most `columns`.

    Columns that do not fit follow in further tables; each begins with the first column.
    One that does not fit beside the first even so has its cells wrapped, or below the first.
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    tables, used = [[0]], wide[0]
    for place, width in enumerate(wide[1:], 1):
        if len(tables[-1]) > 1 and used + len(_GAP) + width > columns:
            tables.append([0])
            used = wide[0]
        tables[-1].append(place)
        used += len(_GAP) + width
    lines: list[str] = []
    for places in tables:
        table = [[row[place] for place in places] for row in rows]
        whole = [line.rstrip() for line in aligned(table)]
        if max(map(len, whole)) > columns:
            whole = _two_columns(table, columns)
        lines += [*([""] if lines else []), *whole]
    return lines


def _two_columns(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Format two columns with wrapped cells in the second, below the first if words need it."""
    first = max(len(row[0]) for row in rows) + len(_GAP)
    words = [word for row in rows for word in row[1].split()]
    beside = first + max(map(len, words), default=0) <= columns
    lines: list[str] = []
    for title, cell in rows:
        if beside:
            head, *rest = wrapped(cell, columns - first) or [""]
            lines += [f"{title:<{first}}{head}".rstrip(), *(" " * first + line for line in rest)]
        else:
            lines += [*wrapped(title, columns), *wrapped("    " + cell, columns)]
    return lines


_FORMS = dict.fromkeys(("on", "true", "yes", "1"), True) | dict.fromkeys(
    ("off", "false", "no", "0"), False
)

WANTED = "on or off is wanted"


def switch(value: object) -> bool:
    """Return the state that a value of any origin stands for. Raises `ValueError` if for none."""
    if isinstance(value, bool):
        return value
    try:
        return _FORMS[str(value).strip().lower()]
    except KeyError:
        raise ValueError(WANTED) from None


def on_off(state: bool) -> str:
    """Format a switch as people are taught to type it."""
    return "on" if state else "off"
