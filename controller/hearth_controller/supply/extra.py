"""A user's own packages on the nodes (`python_extra`), and the file with their exact versions.

They are resolved once for each kind of node, with the lock as constraints, and written with their
hashes beside the inventory: nodes that come later get the same files.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from hearth.base.errors import SupplyError
from hearth.base.files import write_whole
from hearth.base.text import duration
from hearth_controller.supply.locks import Pin
from hearth_controller.supply.target import Target

OPTION = "python_extra"

_SECONDS = 600
_SHOWN = 5
_SILENT = "the package index does not answer"


def malformed(wanted: Sequence[Any]) -> list[str]:
    """Return errors in the value of `python_extra`, one sentence each."""
    findings, seen = [], set()
    for each in wanted:
        try:
            requirement = Requirement(each) if isinstance(each, str) else None
        except InvalidRequirement:
            requirement = None
        if requirement is None:
            findings.append(f"{each!r} is no package; write a name, such as jupyterlab or rich>=14")
        elif requirement.url:
            findings.append(f"{each!r} names an address; only packages of the index can be added")
        elif (name := canonicalize_name(requirement.name)) in seen:
            findings.append(f"{requirement.name} is there twice; leave one out")
        else:
            seen.add(name)
    return findings


def contradictions(wanted: Iterable[str], lock: Mapping[str, Pin]) -> list[str]:
    """Return the packages of `python_extra` that want another version than the lock has."""
    findings = []
    for each in map(Requirement, wanted):
        pin = lock.get(canonicalize_name(each.name))
        if pin and not each.specifier.contains(pin.version, prereleases=True):
            findings.append(
                f"{OPTION}: {each}: the lock has {pin}, which every node of its kind gets; leave "
                "it out of the list"
            )
    return findings


class ExtraLock:
    """The file with the resolved packages of an inventory, by kind of node and list of names."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pins(
        self, kind: str, target: Target, wanted: Sequence[str], lock: Mapping[str, Pin]
    ) -> dict[str, Pin] | None:
        """Return the resolved packages by name; None if they are not resolved for this lock."""
        if not wanted:
            return {}
        entry = self._read().get(_key(kind, target, wanted), {})
        return _pins(entry) if entry.get("lock") == _digest(lock) else None

    def resolve(
        self,
        kind: str,
        target: Target,
        wanted: Sequence[str],
        lock: Mapping[str, Pin],
        here: Mapping[str, str],
    ) -> None:
        """Let pip choose versions that fit the lock, and write them to the file.

        Versions of another entry of the file are kept where they fit, as are those that a node has
        `here`, by name: on the controller's own Python, Ansible needs them.

        Raises `SupplyError` with all findings.
        """
        entries = self._read()
        held = {name: Pin(name, version, ()) for name, version in here.items()}
        for entry in entries.values():
            held |= _pins(entry)
        locked = list(lock.values())
        kept = [pin for pin in held.values() if pin.name not in lock]
        found, trouble = _ask_pip(wanted, target, [*locked, *kept])
        if trouble and kept:
            found, trouble = _ask_pip(wanted, target, locked)
        if trouble:
            raise SupplyError("\n".join(_causes(wanted, target, trouble)))
        entries[_key(kind, target, wanted)] = {
            "lock": _digest(lock),
            "packages": {
                pin.name: {"version": pin.version, "hashes": list(pin.hashes)}
                for pin in found
                if pin.name not in lock
            },
        }
        write_whole(self._path, json.dumps(entries, indent=1, sort_keys=True) + "\n")

    def _read(self) -> dict[str, Any]:
        try:
            return json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise SupplyError(f"{self._path} is damaged; delete it, and it is made anew") from None


def _key(kind: str, target: Target, wanted: Sequence[str]) -> str:
    return f"{kind} {target.interpreter} {target.machine}: {', '.join(sorted(wanted))}"


def _digest(lock: Mapping[str, Pin]) -> str:
    return hashlib.sha256("\n".join(map(str, lock.values())).encode()).hexdigest()[:16]


def _pins(entry: Mapping[str, Any]) -> dict[str, Pin]:
    return {
        name: Pin(name, its["version"], tuple(its["hashes"]))
        for name, its in entry.get("packages", {}).items()
    }


def _ask_pip(
    wanted: Sequence[str], target: Target, fixed: Sequence[Pin], *options: str
) -> tuple[list[Pin], str]:
    """Return the packages that pip would install on a node with those that are fixed, or why not.

    A build such as `torch==2.13.0+cpu` is not on every index: an empty wheel stands for it, since
    the lock has all that it needs.
    """
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "wanted.txt").write_text("".join(f"{each}\n" for each in wanted))
        (here / "constraints.txt").write_text("".join(f"{pin}\n" for pin in fixed))
        for pin in fixed:
            if pin.is_build:
                _write_empty_wheel(here, pin)
        command = [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--no-input"),
            *("--disable-pip-version-check", "--only-binary", ":all:", "--ignore-installed"),
            *("--target", str(here / "target"), "--report", str(here / "report.json")),
            *(
                "--find-links",
                folder,
                "-c",
                str(here / "constraints.txt"),
                "-r",
                str(here / "wanted.txt"),
            ),
            *(*target.pip_options, *options),
        ]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return [], f"pip did not choose versions within {duration(_SECONDS)}"
        if done.returncode:
            return [], _reason(done.stdout, done.stderr)
        report = json.loads((here / "report.json").read_text(encoding="utf-8"))
    return [
        Pin(
            canonicalize_name(each["metadata"]["name"]),
            each["metadata"]["version"],
            (f"sha256:{each['download_info']['archive_info']['hashes']['sha256']}",),
        )
        for each in report["install"]
    ], ""


def _reason(output: str, errors: str) -> str:
    """Return why pip failed: the index that does not answer, the conflict, or its last words."""
    if "Retrying (" in errors:
        return f"{_SILENT}: connect this computer, or set the index or proxy of pip"
    conflict = output.partition("The conflict is caused by:\n")[2].partition("\n\n")[0]
    lines = [line.strip() for line in (conflict or errors).splitlines() if line.strip()]
    return "; ".join(lines[-_SHOWN:]) or "pip gave no reason"


def _write_empty_wheel(folder: Path, pin: Pin) -> None:
    """Write a wheel that has the name and version of a package and needs nothing."""
    stem = f"{pin.name.replace('-', '_')}-{pin.version}"
    info = f"{stem}.dist-info"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        head = f"Metadata-Version: 2.1\nName: {pin.name}\nVersion: {pin.version}\n"
        wheel.writestr(f"{info}/METADATA", head)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def _causes(wanted: Sequence[str], target: Target, trouble: str) -> list[str]:
    """Return the packages that pip does not find by themselves, else why all do not fit."""
    if trouble.startswith(_SILENT):
        return [f"{OPTION}: {trouble}"]
    python = "{}.{}".format(*target.python)
    lost = [each for each in wanted if _ask_pip([each], target, [], "--no-deps")[1]]
    if lost and (len(lost) < len(wanted) or "No matching distribution" in trouble):
        return [
            f"{OPTION}: the package index has no {each} as a wheel for Python {python} on "
            f"{target.machine}; correct the name, or leave it out"
            for each in lost
        ]
    return [f"{OPTION}: {', '.join(wanted)} do not fit the lock or each other ({trouble})"]
