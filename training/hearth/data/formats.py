"""Reads data files and Hub data sets into records, each with its line number.

- `.jsonl`, `.ndjson`: one JSON object per line; blank lines are skipped.
- `.json`: a list of objects, or an object that holds one; the "line" is the place in the list,
  counted from 1. JSON lines under this name are read as such.
- `.txt`: documents separated by blank lines (as `sample_by="paragraph"` of the datasets library);
  for documents that contain blank lines use `.jsonl` with a `text` column.
- `.csv`, `.tsv`: a header line, then one record per row; separated by comma, semicolon or tab. A
  first line `sep=;`, which Excel understands, names the separator.
- `.parquet` and the Hub: one record per row; the "line" is the row, counted from 1.

Text is UTF-8, or UTF-16 with a byte order mark; Windows line ends and those of old Macs are
accepted. Text files may be packed by gzip: `.jsonl.gz`.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from hearth.base.errors import DataError
from hearth.base.files import sha256_of
from hearth.base.text import listed
from hearth.data.columns import ANSWERS, CONVERSATIONS, QUESTIONS, TEXT
from hearth.data.conversation import is_conversation
from hearth.data.findings import LINES, SHOWN, Findings, Problem, kind_of, printable
from hearth.data.locate import HubDataset, LocalFile, LocalFiles, suffix_of
from hearth.data.records import DataRecord, Records, renaming
from hearth.data.text_files import GZIP, Add, head_of, text_lines

_SEPARATORS = ",;\t"
_EXCEL = re.compile(r'"?sep=([^"\s\\]|\t)"?\s*')


def open_records(
    data: LocalFile | LocalFiles | HubDataset,
    columns: Mapping[str, str] | None = None,
    in_mixture: bool = False,
) -> Records:
    """Return the records of `data`, with the columns renamed as the setting `columns` says.

    In a mixture all of these columns may be missing.

    Raises `DataError` if a file's content does not match its suffix, or if the Hub's data set
    cannot be loaded.
    """
    if isinstance(data, HubDataset):
        from hearth.data.hub_rows import load_hub_rows  # with the Hub's library: 0.2 s

        rows, sha256 = load_hub_rows(data)
        records = Records(data.name, sha256, lambda _: numbered(iter(rows)))
    else:
        records = _records_of(data)
    if not columns:
        return records
    read = renaming(records.read, columns, required=not in_mixture)
    return Records(records.name, records.sha256, read, records.form, records.files)


def _records_of(data: LocalFile | LocalFiles) -> Records:
    files = data.files if isinstance(data, LocalFiles) else (data,)
    problems: list[str] = []
    for file in files:
        try:
            _refuse_other_format(file)
        except DataError as error:
            problems += error.findings
    if problems:
        more = len(problems) - SHOWN
        rest = [f"{data.name}: and {more} more with problems"] if more > 0 else []
        raise DataError(*problems[:SHOWN], *rest)
    sums = [sha256_of(file.path) for file in files]
    forms = [suffix_of(file.path) for file in files]
    read = functools.partial(_read_files, files)
    if isinstance(data, LocalFile):
        return Records(data.name, sums[0], read, forms[0])
    names = tuple(file.name for file in files)
    sha256 = hashlib.sha256(" ".join(sums).encode()).hexdigest()
    return Records(data.name, sha256, read, " ".join(forms), names)


def _read_files(files: Iterable[LocalFile], findings: Findings) -> Iterator[DataRecord]:
    """Yield the records of all files, numbered as `place_of` takes them."""
    for number, file in enumerate(files):
        before = number * LINES

        def add(line: int, problem: str, cause: str = "", before: int = before) -> None:
            findings.add(before + line, problem, cause)

        reader = _READERS[suffix_of(file.path).removesuffix(GZIP)]
        for record in reader(file, add):
            yield DataRecord(before + record.line, record.fields)


def _refuse_other_format(file: LocalFile) -> None:
    """Raise `DataError` if the first bytes do not match the format of the file's suffix."""
    suffix = suffix_of(file.path)
    if suffix == ".parquet":
        return  # its reader knows
    start = head_of(file.path, suffix).lstrip()
    if suffix.startswith((".jsonl", ".ndjson")) and start.startswith("["):
        raise DataError(
            f"{file.path}: this is one JSON array, not one JSON object a line; name it .json"
        )
    if suffix.startswith((".txt", ".csv", ".tsv")) and _is_object(start.split("\n", 1)[0]):
        raise DataError(
            f"{file.path}: the name says {suffix[1:]}, but the content is JSON lines; name it "
            ".jsonl"
        )


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _read_jsonl(file: LocalFile, add: Add) -> Iterator[DataRecord]:
    return _records_in(text_lines(file.path, add), add)


def _records_in(lines: Iterable[tuple[int, str]], add: Add) -> Iterator[DataRecord]:
    """Yield the records of JSON lines."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            yield DataRecord(number, _present(_checked_object(_parsed(line), "each line")))
        except json.JSONDecodeError as error:
            add(
                number,
                f"this is not JSON ({error.msg}, column {error.colno}); "
                "each line must be one JSON object",
            )
        except Problem as problem:
            add(number, str(problem))


def _parsed(text: str) -> Any:
    """Parse JSON. Raises `JSONDecodeError`, and `Problem` for JSON that cannot be used."""
    try:
        return json.loads(text, object_pairs_hook=_without_twins)
    except RecursionError:
        raise Problem("this is not usable JSON (nested too deep)") from None
    except json.JSONDecodeError:
        raise
    except ValueError:
        most = sys.get_int_max_str_digits()
        raise Problem(f"this is not usable JSON (a number of more than {most} digits)") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these members. Raises `Problem` if two have one name."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Problem(f"two members have the name '{printable(twice)}'; remove or rename one")
    return members


def _checked_object(value: Any, which: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        kind = {list: "an array", str: "a string"}.get(type(value), "a bare value")
        raise Problem(f"this is {kind}; {which} must be one JSON object")
    return value


def _read_json(file: LocalFile, add: Add) -> Iterator[DataRecord]:
    lines = list(text_lines(file.path, add))
    if not lines:
        return
    text = "\n".join(line for _, line in lines)
    try:
        rows = _rows_of(_parsed(text))
    except json.JSONDecodeError as error:
        if _is_object(next((line for _, line in lines if line.strip()), "")):
            yield from _records_in(lines, add)
        else:
            number, _ = lines[error.lineno - 1]
            add(number, f"this is not JSON ({error.msg}, column {error.colno}); correct it")
        return
    except Problem as problem:
        add(1, str(problem))
        return
    for number, row in enumerate(rows, start=1):
        try:
            yield DataRecord(number, _present(_checked_object(row, "each element of the list")))
        except Problem as problem:
            add(number, str(problem))


def _rows_of(content: Any) -> list[Any]:
    """Return the records in the content of a `.json` file. Raises `Problem` if there are none."""
    if isinstance(content, dict):
        content = _rows_in(content)
    if not isinstance(content, list):
        raise Problem(f"this is {kind_of(content)}; write a list of objects")
    if not content:
        raise Problem("this list is empty; there is nothing to train on")
    # The Hub's viewer wraps each row.
    return [row["row"] if _is_wrapped(row) else row for row in content]


def _is_wrapped(row: Any) -> bool:
    return isinstance(row, dict) and {"row_idx", "row"} <= row.keys()


def _rows_in(content: dict[str, Any]) -> list[Any]:
    """Return the records in an object: one record, a list of them, or a list for each column."""
    lists = [name for name, value in content.items() if is_conversation(value)]
    if any("role" in content[name][0] or "from" in content[name][0] for name in lists):
        return [content]
    if not lists and {*QUESTIONS, *ANSWERS, *CONVERSATIONS, TEXT} & content.keys():
        columns = list(content.values())
        lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
        if len(lengths) > 1 or -1 in lengths:
            return [content]
        return [dict(zip(content, row, strict=True)) for row in zip(*columns, strict=True)]
    if {"rows", "features"} <= set(lists):  # as the Hub's viewer gives them
        lists = ["rows"]
    if len(lists) > 1:
        raise Problem(
            f"this object has several lists ({listed(map(printable, lists))}); keep the one to "
            "train on in a file of its own"
        )
    return content[lists[0]] if lists else [content]


def _read_txt(file: LocalFile, add: Add) -> Iterator[DataRecord]:
    start, document = 0, list[str]()
    for number, line in text_lines(file.path, add):
        if line.strip():
            start = start or number
            document.append(line)
        elif document:
            yield DataRecord(start, {"text": "\n".join(document)})
            start, document = 0, []
    if document:
        yield DataRecord(start, {"text": "\n".join(document)})


def _read_csv(file: LocalFile, add: Add) -> Iterator[DataRecord]:
    csv.field_size_limit(1 << 30)
    numbered_lines = text_lines(file.path, add)
    last, first = next(numbered_lines, (0, ""))
    named = _EXCEL.fullmatch(first)
    if named:
        last, first = next(numbered_lines, (last, ""))
    separator = named[1] if named else max(_SEPARATORS, key=first.count)

    start = 0  # the first line of a row

    def lines() -> Iterator[str]:
        nonlocal start, last
        for number, line in chain([(last, first)], numbered_lines):
            start, last = start or number, number
            yield line + "\n"

    rows, header = csv.reader(lines(), delimiter=separator, strict=True), list[str]()
    try:
        for row in rows:
            if not header:
                header = _header(row)
            elif row and len(row) != len(header):
                add(
                    start,
                    f"this row has {len(row)} fields and the header {len(header)}; put text that "
                    "contains the separator, quotes or line breaks in double quotes",
                )
            elif row:
                yield DataRecord(start, dict(zip(header, row, strict=True)))
            start = 0
    except Problem as problem:
        add(start, str(problem))
    except csv.Error as error:  # after it, the beginning of a row is unknown
        add(start, f"this row is not csv ({error}); check its quotes, up to line {last}")


def _header(row: list[str]) -> list[str]:
    """Return the names in a header; columns without one get a number."""
    names = [name.strip() or f"column {number}" for number, name in enumerate(row, 1)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise Problem(f"several columns have the name {', '.join(twice)}; rename all but one")
    return names


def _read_parquet(file: LocalFile, _: Add) -> Iterator[DataRecord]:
    import pyarrow
    import pyarrow.parquet

    path = file.path
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            if table.metadata.num_rows == 0:
                raise DataError(f"{path}: this file has no rows; there is nothing to train on")
            names = table.schema_arrow.names
            if twice := {name for name in names if names.count(name) > 1}:
                raise DataError(
                    f"{path}: several columns have the name {listed(twice)}; rename all but one"
                )
            yield from numbered(
                row for batch in table.iter_batches(batch_size=1024) for row in batch.to_pylist()
            )
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: this parquet file cannot be read ({str(error).splitlines()[0]}); "
            "it may be cut short or of another format, copy it again"
        ) from error


def numbered(rows: Iterable[dict[str, Any]], first: int = 1) -> Iterator[DataRecord]:
    """Yield the records of rows, which are counted from `first`.

    Each object in a row has the members of all rows: those that are null are left out.
    """
    return (DataRecord(number, _filled(row)) for number, row in enumerate(rows, start=first))


def _filled(value: Any) -> Any:
    """Return a value without the members of objects that are null."""
    if isinstance(value, dict):
        return {name: _filled(member) for name, member in value.items() if member is not None}
    return [_filled(each) for each in value] if isinstance(value, list) else value


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


_READERS: dict[str, Callable[[LocalFile, Add], Iterator[DataRecord]]] = {
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".json": _read_json,
    ".txt": _read_txt,
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".parquet": _read_parquet,
}
