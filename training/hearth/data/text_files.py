"""Opens text files as people have them: packed by gzip, in UTF-8 or UTF-16, with any line ends."""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from string import whitespace
from typing import BinaryIO

from hearth.base.errors import DataError

Add = Callable[..., None]
"""Adds a problem: its 1-based line, its text, and optionally its `cause` (see `Findings.add`)."""

GZIP = ".gz"
_MAGIC = b"\x1f\x8b"
_HEAD = 1 << 20


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacked if its name ends in `.gz`.

    Raises `DataError` if it cannot be read or unpacked.
    """
    packed = path.suffix.lower() == GZIP
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: this file cannot be unpacked ({error}); it may be cut short or not of gzip, "
            "copy it again"
        ) from error
    except OSError as error:
        raise DataError(
            f"{path}: this file cannot be read ({error.strerror or error}); make it readable for "
            "you"
        ) from error


def has_content(path: Path) -> bool:
    """Return whether a file holds anything but a byte order mark and white space."""
    ignored = BOM_UTF8 + BOM_UTF16_LE + whitespace.encode() + b"\0"
    with opened(path) as file:
        return any(chunk.strip(ignored) for chunk in iter(lambda: file.read(_HEAD), b""))


def head_of(path: Path, suffix: str) -> str:
    """Return the beginning of a text file. Raises `DataError` if it is no text."""
    with opened(path) as file:
        head = file.read(1 << 16)
    if head.startswith(_MAGIC):
        raise DataError(
            f"{path}: this is binary data, packed by gzip, not text; name it {path.name}{GZIP}, or "
            "unpack it"
        )
    if _is_utf16(head):
        return head[: len(head) // 2 * 2].decode("utf-16", "replace")
    if len(head) > 1 and any(not any(head[odd:512:2]) for odd in (0, 1)):
        raise DataError(
            f"{path}: this looks like binary data, but is UTF-16 without a byte order mark; save "
            "it as UTF-8"
        )
    if not _is_text(head):
        raise DataError(
            f"{path}: this is binary data, not text; unpack it if it is compressed, and give a "
            f"{suffix[1:]} file in UTF-8"
        )
    return head.removeprefix(BOM_UTF8).decode("utf-8", "replace")


def text_lines(path: Path, add: Add) -> Iterator[tuple[int, str]]:
    """Yield 1-based number and text of each line, without the line end.

    Lines that are not UTF-8 are left out and given to `add`.
    """
    with opened(path) as file:
        for number, raw in enumerate(_raw_lines(file, path), start=1):
            try:
                yield number, raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                add(
                    number,
                    f"byte {error.start + 1} of this line (0x{raw[error.start]:02x}) is not "
                    "UTF-8; save the file as UTF-8 (an old one of Windows: iconv -f WINDOWS-1252 "
                    "-t UTF-8)",
                    cause="not UTF-8",
                )


def _raw_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Yield the lines of a file in UTF-8, without a byte order mark."""
    first = file.readline(_HEAD)
    if _is_utf16(first):
        try:
            text = (first + file.read()).decode("utf-16")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}: byte {error.start + 1} of this file is not UTF-16; it may be cut short, "
                "copy it again, or save it as UTF-8"
            ) from error
        yield from text.encode("utf-8").splitlines()
    elif b"\n" not in first and b"\r" in first:  # the line ends of old Macs
        yield from (first + file.read()).removeprefix(BOM_UTF8).split(b"\r")
    else:
        first += b"" if first.endswith(b"\n") else file.readline()
        yield first.removeprefix(BOM_UTF8)
        yield from file


def _is_utf16(head: bytes) -> bool:
    """Return whether a file that begins with `head` has the byte order mark of UTF-16."""
    return head.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and head[2:4] != b"\0\0"


def _is_text(head: bytes) -> bool:
    """Return whether at most one percent of the bytes are control bytes, none of them zero."""
    controls = sum(byte < 32 and byte not in b"\t\n\r\f" for byte in head)
    return b"\0" not in head and controls * 100 <= len(head)
