"""Collects problems with the records of a data set, so that users see them all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hearth.base.errors import DataError

SHOWN = 5


class Problem(Exception):
    """A problem with one record: the text gives its reason and remedy."""


@dataclass(frozen=True)
class Note:
    """A remark on examples: its text, their number, and the first lines (or rows) of them."""

    text: str
    count: int
    lines: tuple[int, ...]

    def __str__(self) -> str:
        more = f" and {self.count - len(self.lines)} more" * (self.count > len(self.lines))
        lines = f"line{'s' * (self.count > 1)} {', '.join(map(str, self.lines))}{more}"
        return f"{self.text}: {self.count} ({lines})"


def note(text: str, lines: Sequence[int]) -> Note:
    """Return a note on the examples in all these `lines`."""
    return Note(text, len(lines), tuple(int(line) for line in lines[:SHOWN]))


class Findings:
    """Problems of the data set `name` with their lines; each cause is reported once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._places: dict[str, list[int]] = {}
        self._problems: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, line: int, problem: str, cause: str = "") -> None:
        """Add `problem` at 1-based `line` (row, for parquet and the Hub).

        Of problems with the same `cause`, by default their text, the first is shown.
        """
        self._places.setdefault(cause or problem, []).append(line)
        self._problems.setdefault(cause or problem, problem)

    def raise_any(self) -> None:
        """Raise `DataError` with the first five different problems, if there are any."""
        if not self._places:
            return
        findings = [self._finding(cause) for cause in list(self._places)[:SHOWN]]
        rest = sum(map(len, list(self._places.values())[SHOWN:]))
        if rest:
            findings.append(f"{self.name}: and {rest} more line{'s' * (rest > 1)} with problems")
        raise DataError(*findings)

    def _finding(self, cause: str) -> str:
        first, *others = self._places[cause]
        also = ""
        if others:
            also = f" (also line{'s' * (len(others) > 1)} {', '.join(map(str, others[:SHOWN]))}"
            also += f" and {len(others) - SHOWN} more)" if len(others) > SHOWN else ")"
        return f"{self.name}:{first}: {self._problems[cause]}{also}"
