"""Lock files of pip-tools: exact versions with the hashes of all their builds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

from hearth_controller.supply.target import PROCESSORS, PYTHONS, Target

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


@dataclass(frozen=True)
class Pin:
    """A package of a lock file: normalized name (PEP 503), version, `sha256:…` of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def is_build(self) -> bool:
        """Whether the version is a local build such as `2.13.0+cpu`, absent from public indexes."""
        return "+" in self.version

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def read_lock(text: str) -> dict[str, Pin]:
    """Return the pins of a lock file by name, in file order."""
    pins: dict[str, Pin] = {}
    name = ""
    for line in text.splitlines():
        if found := _PIN.match(line):
            name = canonicalize_name(found[1])
            pins[name] = Pin(name, found[2], ())
        if name and (hashes := _HASH.findall(line)):
            pins[name] = Pin(name, pins[name].version, (*pins[name].hashes, *hashes))
    return pins


def lock_in(folder: Path, kind: str) -> dict[str, Pin]:
    """Return the pins of the lock file for nodes of a kind, `cpu` or `gpu`."""
    return read_lock((folder / f"{kind}.lock").read_text())


def as_requirements(pins: Iterable[Pin]) -> str:
    """Return pins as text for `pip install --require-hashes -r`."""
    return "".join(
        f"{pin} " + " ".join(f"--hash={each}" for each in pin.hashes) + "\n" for pin in pins
    )


def not_for(pins: Iterable[Pin], target: Target) -> list[Pin]:
    """Return the pins that have no build for `target` in the lock file."""
    if target.python in PYTHONS and target.machine in PROCESSORS:
        return []
    return [pin for pin in pins if pin.is_build]
