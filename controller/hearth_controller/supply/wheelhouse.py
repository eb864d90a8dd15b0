"""The controller's folder of wheels for the nodes: each fetched once and verified by its hash.

pip downloads them, since it handles indexes, mirrors and proxies. It resumes a broken connection
and caches each complete file, so that a killed download loses at most the file in transit. Its
cache is beside the wheels and is removed once they are complete: the user's cache would keep a
second copy of all, several GB.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from hearth.base.errors import SupplyError
from hearth.base.files import sha256_of
from hearth.base.locks import locked
from hearth_controller.supply.locks import Pin, as_requirements
from hearth_controller.supply.target import Target

Show = Callable[[str, int], None]
"""Progress callback: a text, and the completed tenths of the download."""

_RESUMES = 20
_BEGINS = re.compile(r"(?:Collecting|Processing) (\S+)")
_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")


@dataclass(frozen=True)
class Wheel:
    """A wheel in the folder: its file, its checksum, and its packed and unpacked size in bytes."""

    path: Path
    sha256: str
    size: int
    unpacked: int


class Wheelhouse:
    """A folder of wheels, of any platform."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, pins: Iterable[Pin], target: Target) -> dict[str, Wheel]:
        """Return by package the intact wheels for `target` that are already here."""
        tags = target.tags
        available: dict[tuple[str, str], list[Path]] = {}
        for path in sorted(self._folder.glob("*.whl")):
            try:
                name, version, _, platforms = parse_wheel_filename(path.name)
            except InvalidWheelFilename:
                continue
            if platforms & tags:
                available.setdefault((name, str(version)), []).append(path)
        found = {}
        for pin in pins:
            for path in available.get((pin.name, pin.version), []):
                sha256 = sha256_of(path)
                if f"sha256:{sha256}" in pin.hashes:
                    found[pin.name] = Wheel(path, sha256, path.stat().st_size, _unpacked(path))
                    break
        return found

    def fetch(
        self, pins: Iterable[Pin], target: Target, builds_from: str, show: Show
    ) -> dict[str, Wheel]:
        """Return the wheels of all pins for `target`, after downloading missing ones.

        `builds_from` is the index for builds such as `2.13.0+cpu` that the configured one lacks.

        Raises:
            SupplyError: A wheel is not available.
        """
        pins = list(pins)
        self._folder.mkdir(parents=True, exist_ok=True)
        waiting = "packages: another play is downloading them; waiting for it"
        with locked(self._folder / ".lock", lambda text: show(text, 0), waiting):
            found = self.find(pins, target)
            missing = [pin for pin in pins if pin.name not in found]
            builds = [pin for pin in missing if pin.is_build]
            if missing and not self._cache.exists():
                self._adopt_cache()
            self._download([pin for pin in missing if not pin.is_build], target, show)
            try:
                self._download(builds, target, show)
            except SupplyError:
                self._download(builds, target, show, "--index-url", builds_from)
            shutil.rmtree(self._cache, ignore_errors=True)
            return found | self.find(missing, target)

    @property
    def _cache(self) -> Path:
        """Folder of pip's cache, until all wheels are here."""
        return self._folder / ".cache"

    def _adopt_cache(self) -> None:
        """Begin the cache with hard links to the user's, so that pip downloads none of it again."""
        done = subprocess.run(
            [sys.executable, "-m", "pip", "cache", "dir", "--disable-pip-version-check"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        theirs = Path(done.stdout.strip())
        if done.returncode or not theirs.is_dir():  # the user keeps none
            return
        # A file that cannot be linked, from another disk for example, is downloaded.
        with suppress(OSError):
            shutil.copytree(theirs, self._cache, copy_function=os.link)

    def _download(self, pins: list[Pin], target: Target, show: Show, *source: str) -> None:
        """Let pip download pins into a temporary folder, then move each wheel in by renaming."""
        if not pins:
            return
        for stale in self._folder.glob(".new-*"):
            shutil.rmtree(stale, ignore_errors=True)
        fresh = self._folder / f".new-{os.getpid()}"
        fresh.mkdir()
        try:
            wanted = fresh / "wanted.txt"
            wanted.write_text(as_requirements(pins))
            self._pip(pins, [*target.pip_options, *source, "-r", str(wanted)], fresh, show)
            for path in fresh.glob("*.whl"):
                path.rename(self._folder / path.name)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def _pip(self, pins: list[Pin], options: list[str], folder: Path, show: Show) -> None:
        """Run `pip download` and show its progress."""
        command = [
            *(sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"),
            *("--progress-bar", "raw", "--resume-retries", str(_RESUMES)),
            *("--cache-dir", str(self._cache)),
            *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--dest", str(folder)),
            *options,
        ]
        last: deque[str] = deque(maxlen=6)
        begun, package, file = 0, "", ""
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as pip:
            assert pip.stdout is not None
            for line in pip.stdout:
                if found := _BEGINS.match(line):
                    begun, package, file = begun + 1, Path(found[1]).name, ""
                elif found := _PROGRESS.match(line):
                    file = f", {int(found[1]) >> 20} of {int(found[2]) >> 20} MB"
                else:
                    last.append(line.strip())
                if package:
                    text = f"package {begun} of {len(pins)}: {package}{file}"
                    show(text, (begun - 1) * 10 // len(pins))
        if pip.returncode:
            output = "\n".join(line for line in last if line)
            raise SupplyError(
                f"{len(pins)} packages cannot be downloaded; complete files are kept, so call "
                f"this again once the cause is gone. pip's last words:\n{output}"
            )


def _unpacked(path: Path) -> int:
    """Return the installed size of a wheel in bytes."""
    with zipfile.ZipFile(path) as wheel:
        return sum(member.file_size for member in wheel.infolist())
