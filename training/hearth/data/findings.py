"""Problems with the records of a data set, collected so that users see them all at once.

Single values of a record are checked here: text, text that holds JSON, and switches.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hearth.base.errors import DataError

SHOWN = 5
LINES = 1 << 40
"""More lines than a file has. In a data set of several files, line l of file n, counted from 0, has
the number n * LINES + l, so that the numbers of one file alone are its lines."""


def place_of(number: int, name: str, files: Sequence[str]) -> str:
    """Return `file:line` of a record; the data set is `name` and has these `files`, if several."""
    file, line = divmod(int(number), LINES)
    return f"{files[file] if files else name}:{line}"


class Problem(Exception):
    """A problem with one record: the text gives its reason and remedy."""


class Endless(Problem):
    """A chat template, which is a program of others, computes without coming to an end."""

    def __init__(self) -> None:
        super().__init__(
            "the model's chat template does not end with this conversation, or takes "
            "too much memory; choose another model, or correct its template"
        )


@dataclass(frozen=True)
class Note:
    """A remark on examples: its text, their number, and the first of their lines.

    Lines are numbered as `place_of` takes them.
    """

    text: str
    count: int
    lines: tuple[int, ...]

    def sentence(self, files: Sequence[str] = ()) -> str:
        """Return the remark with the count and the lines, which are in `files` if in several."""
        more = f" and {self.count - len(self.lines)} more" * (self.count > len(self.lines))
        places = [place_of(line, "", files) if files else str(line) for line in self.lines]
        lines = f"line{'s' * (self.count > 1)} {', '.join(places)}{more}"
        return f"{self.text}: {self.count} ({lines})"


def note(text: str, lines: Sequence[int]) -> Note:
    """Return a note on the examples in all these `lines`."""
    return Note(text, len(lines), tuple(int(line) for line in lines[:SHOWN]))


class Findings:
    """Problems of the data set `name` with their lines; each cause is reported once.

    `files` are the names of its files if it has several; lines are numbered as `place_of` takes
    them.
    """

    def __init__(self, name: str, files: Sequence[str] = ()) -> None:
        self.name, self._files = name, files
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
            places = [self._place(line) if self._files else str(line) for line in others[:SHOWN]]
            also = f" (also line{'s' * (len(others) > 1)} {', '.join(places)}"
            also += f" and {len(others) - SHOWN} more)" if len(others) > SHOWN else ")"
        return f"{self._place(first)}: {self._problems[cause]}{also}"

    def _place(self, line: int) -> str:
        return place_of(line, self.name, self._files)


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_KINDS = {list: "a list", dict: "an object", bool: "true or false", type(None): "null"}


def checked_text(value: Any, what: str) -> str:
    """Return `value` if it is text. Raises `Problem` that names it as `what`."""
    if not isinstance(value, str):
        raise Problem(f"{what} is {kind_of(value)}, not text; write it in quotes or leave it out")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Problem(
            f"{what} has half a surrogate pair at character {error.start + 1}, which is not text; "
            "remove it"
        ) from None
    return value


def kind_of(value: Any) -> str:
    """Return the name of a value's type in messages, such as `a list`."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def is_blank(value: Any) -> bool:
    """Return whether `value` holds nothing: null, white space, or an empty list or object."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def parsed(value: Any, what: str) -> Any:
    """Return `value`, or the JSON that it holds as text, as cells of csv do.

    Raises `Problem` that names it as `what` if that text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Problem(f"{what}: this text is not JSON, correct it: {shown(value)}") from None


def checked_json(value: Any, what: str) -> Any:
    """Return `value` if it can be written as JSON. Raises `Problem` that names it as `what`."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        raise Problem(
            f"{what} has a value that JSON cannot hold (a date, bytes, NaN or half a surrogate "
            "pair); write it as text"
        ) from None
    return value


def as_switch(value: Any) -> bool | None:
    """Return the switch that `value` is, or None for any other value.

    Switches are true and false, 1 and 0, and these words in a cell of csv.
    """
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, (int, float)) and value in (0, 1) else None


def shown(value: Any) -> str:
    """Return at most 60 printable characters of a value, for a message."""
    return _SHORT.repr(value)


def printable(name: Any) -> str:
    """Return the name of a column for a message; half a surrogate pair cannot be printed."""
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8")
