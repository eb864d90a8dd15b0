"""Download of a file, resumed after an interruption and verified by its checksum."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from hearth.base.errors import SupplyError
from hearth.base.files import sha256_of

Show = Callable[[str, int], None]
"""Progress callback: a text, and the completed tenths of the download."""

_TIMEOUT = 30.0
_ATTEMPTS = 5
_CHUNK = 1 << 20


def download(url: str, sha256: str, target: Path, show: Show, pause: float = 2.0) -> None:
    """Download `url` to `target`, unless the file is already there and intact.

    After a broken connection or a killed process, the fetched part is kept as `NAME.part`, and the
    next attempt or call requests only the rest.

    Args:
        url: URL of the file.
        sha256: Expected checksum in hexadecimal digits.
        target: Path of the file; its folder is created.
        show: Progress callback.
        pause: Seconds between two attempts.

    Raises:
        SupplyError: The download failed, or the checksum does not match.
    """
    if target.exists() and sha256_of(target) == sha256:
        return
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    trouble = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(pause)
        try:
            if _fetch(url, part, show):
                break
            trouble = "the connection broke off"
        except urllib.error.HTTPError as error:
            trouble = f"{error.code} {error.reason}"
            if error.code < 500:
                raise _failed(url, target, trouble) from None
        except (OSError, http.client.HTTPException) as error:
            trouble = str(getattr(error, "reason", error)) or type(error).__name__
    else:
        raise _failed(url, target, trouble)
    found = sha256_of(part)
    if found != sha256:
        part.unlink()
        raise SupplyError(
            f"{url} has the checksum {found}, not {sha256} as pinned: it was not kept. Either the "
            "file was replaced, or something on the way changed it; do not use it"
        )
    part.rename(target)


def _fetch(url: str, part: Path, show: Show) -> bool:
    """Append the missing bytes to `part`; return whether it is complete."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # no bytes are left after the local part
            return True
        raise
    with answer, part.open("ab" if answer.status == 206 else "wb") as file:
        size = int(answer.headers.get("Content-Length") or 0) + file.tell()
        while chunk := answer.read(_CHUNK):
            file.write(chunk)
            done = file.tell()
            show(f"{part.stem}: {done >> 20} of {size >> 20} MB", done * 10 // max(size, 1))
        return file.tell() >= size


def _failed(url: str, target: Path, why: str) -> SupplyError:
    return SupplyError(
        f"{url} cannot be downloaded ({why}). What has come is kept: call this again, or bring the "
        f"file here by other means, as {target}"
    )
