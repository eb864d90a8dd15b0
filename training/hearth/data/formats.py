"""Reads data files and Hub data sets into records, each with its line number.

- `.jsonl`: one JSON object per line; blank lines are skipped.
- `.txt`: documents separated by blank lines (as `sample_by="paragraph"` of the datasets library);
  for documents that contain blank lines use `.jsonl` with a `text` column.
- `.csv`: a header line, then one record per row; separated by comma, semicolon or tab.
- `.parquet` and the Hub: one record per row; the "line" is the row, counted from 1.

Text is UTF-8; a byte order mark and Windows line ends are accepted.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.errors import DataError
from hearth.base.files import sha256_of
from hearth.data.findings import Findings, Problem
from hearth.data.hub_rows import load_hub_rows
from hearth.data.locate import HubDataset, LocalFile

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Record:
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
    """

    name: str
    sha256: str
    read: Callable[[Findings], Iterator[Record]]


def open_records(data: LocalFile | HubDataset) -> Records:
    """Return the records of `data`.

    Raises `DataError` if the file's content does not match its suffix, or if the Hub's data set
    cannot be loaded.
    """
    if isinstance(data, HubDataset):
        rows, sha256 = load_hub_rows(data)
        return Records(data.name, sha256, lambda _: numbered(iter(rows)))
    _refuse_other_format(data.path)
    reader = _READERS[data.path.suffix.lower()]
    return Records(data.name, sha256_of(data.path), lambda findings: reader(data.path, findings))


def _refuse_other_format(path: Path) -> None:
    """Raise `DataError` if the first bytes do not match the format of the file's suffix."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return  # its reader knows
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if not _is_text(head):
        raise DataError(
            f"{path}: this is binary data, not text; unpack it if it is compressed, and give a "
            f"{suffix[1:]} file in UTF-8"
        )
    start = head.removeprefix(_BOM).lstrip()
    first = start.split(b"\n", 1)[0].strip()
    if suffix == ".jsonl" and start.startswith(b"["):
        raise DataError(
            f"{path}: this is one JSON array, not one JSON object a line; "
            f"convert it: jq -c '.[]' {path.name}"
        )
    if suffix != ".jsonl" and first.startswith(b"{") and _is_object(first):
        raise DataError(
            f"{path}: the name says {suffix[1:]}, but the content is JSON lines; name it .jsonl"
        )


def _is_text(head: bytes) -> bool:
    """Return whether at most one percent of the bytes are control bytes, none of them zero."""
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    return b"\0" not in head and controls * 100 <= len(head)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _text_lines(path: Path, findings: Findings) -> Iterator[tuple[int, str]]:
    """Yield 1-based number and text of each line, without the line end."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            try:
                yield number, line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                findings.add(
                    number,
                    f"byte {error.start + 1} of this line (0x{line[error.start]:02x}) is not "
                    "UTF-8; save the file as UTF-8 (an old one of Windows: iconv -f WINDOWS-1252 "
                    "-t UTF-8)",
                    cause="not UTF-8",
                )


def _read_jsonl(path: Path, findings: Findings) -> Iterator[Record]:
    for number, line in _text_lines(path, findings):
        if not line.strip():
            continue
        try:
            yield Record(number, _present(_parsed_object(line)))
        except Problem as problem:
            findings.add(number, str(problem))


def _parsed_object(line: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise Problem(
            f"this is not JSON ({error.msg}, column {error.colno}); "
            "each line must be one JSON object"
        ) from None
    except RecursionError:
        raise Problem("this is not usable JSON (nested too deep)") from None
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise Problem(f"this is not usable JSON (a number of more than {most} digits)") from None
    if not isinstance(fields, dict):
        kind = {list: "an array", str: "a string"}.get(type(fields), "a bare value")
        raise Problem(f"this is {kind}; each line must be one JSON object")
    return fields


def _read_txt(path: Path, findings: Findings) -> Iterator[Record]:
    start, document = 0, list[str]()
    for number, line in _text_lines(path, findings):
        if line.strip():
            start = start or number
            document.append(line)
        elif document:
            yield Record(start, {"text": "\n".join(document)})
            start, document = 0, []
    if document:
        yield Record(start, {"text": "\n".join(document)})


def _read_csv(path: Path, findings: Findings) -> Iterator[Record]:
    csv.field_size_limit(1 << 30)
    lines = (line + "\n" for _, line in _text_lines(path, findings))
    header = next(lines, "")
    separator = max(",;\t", key=header.count)
    names = [name.strip() for name in next(csv.reader([header], delimiter=separator), [])]
    rows = csv.reader(lines, delimiter=separator, strict=True)
    start = 2
    try:
        for row in rows:
            if row and len(row) != len(names):
                findings.add(
                    start,
                    f"this row has {len(row)} fields and the header {len(names)}; put text that "
                    "contains the separator, quotes or line breaks in double quotes",
                )
            elif row:
                yield Record(start, dict(zip(names, row, strict=True)))
            start = rows.line_num + 2  # the header was line 1
    except csv.Error as error:  # after it, nobody knows where a row begins
        end = rows.line_num + 1
        findings.add(start, f"this row is not csv ({error}); check its quotes, up to line {end}")


def _read_parquet(path: Path, findings: Findings) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if file.metadata.num_rows == 0:
                raise DataError(f"{path}: this file has no rows; there is nothing to train on")
            yield from numbered(
                row for batch in file.iter_batches(batch_size=1024) for row in batch.to_pylist()
            )
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: this parquet file cannot be read ({str(error).splitlines()[0]}); "
            "it may be cut short or of another format, copy it again"
        ) from error


def numbered(rows: Iterable[dict[str, Any]], first: int = 1) -> Iterator[Record]:
    """Yield the records of rows, which are counted from `first`."""
    return (Record(number, _present(row)) for number, row in enumerate(rows, start=first))


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


_READERS: dict[str, Callable[[Path, Findings], Iterator[Record]]] = {
    ".jsonl": _read_jsonl,
    ".txt": _read_txt,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
