"""Records of a data set, as the readers of formats yield them, with renamed columns. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hearth.base.errors import did_you_mean
from hearth.base.text import listed
from hearth.data.columns import shadowed
from hearth.data.findings import Findings, printable


@dataclass(frozen=True)
class DataRecord:
    """One record: its 1-based line (or row) and its columns, empty ones left out."""

    line: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Records:
    """A data set that can be read repeatedly, in the same order.

    Attributes:
        name: its name in messages.
        sha256: checksum of its content.
        read: yields the valid records and adds problems to the findings.
        form: suffixes of its files, which decide how their bytes are read.
        files: names of its files if it has several; lines are numbered as `place_of` takes them.
    """

    name: str
    sha256: str
    read: Callable[[Findings], Iterator[DataRecord]]
    form: str = ""
    files: tuple[str, ...] = ()


SHOWN = 12
"""Number of columns that a message lists."""


def renamed(fields: Mapping[str, Any], columns: Mapping[str, str]) -> dict[str, Any]:
    """Return a record's columns under Hearth's names; `columns` has the name in the file of each.

    Columns of the file that would be read instead of a named one are hidden by a longer name.
    """
    named = {name: fields[own] for name, own in columns.items() if own in fields}
    taken = {columns[name] for name in named}
    hidden = shadowed(named) | named.keys()
    rest = {
        f"{name} (not in the setting columns)" if name in hidden else name: value
        for name, value in fields.items()
        if name not in taken
    }
    return named | rest


def renaming(
    read: Callable[[Findings], Iterator[DataRecord]], columns: Mapping[str, str], required: bool
) -> Callable[[Findings], Iterator[DataRecord]]:
    """Return `read` with renamed columns.

    A name that no record has is added to the findings. Unless the names are `required`, they may
    all be missing: they are those of another data set of a mixture.
    """

    def renamed_records(findings: Findings) -> Iterator[DataRecord]:
        missing, found, first = set(columns.values()), dict[str, None](), None
        for record in read(findings):
            first = record.line if first is None else first
            if missing:
                missing -= record.fields.keys()
                found |= dict.fromkeys(record.fields)
            yield replace(record, fields=renamed(record.fields, columns))
        if first is None or not (required or missing != set(columns.values())):
            return
        for name in (own for own in columns.values() if own in missing):
            names = [printable(each) for each in found]
            findings.add(
                first,
                f"columns: no record has a column '{name}'{did_you_mean(name, names)}; there are "
                f"{listed(names, SHOWN)}",
            )

    return renamed_records
