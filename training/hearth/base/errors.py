"""Exceptions whose text is written for users.

Any failure caused by an input, a file or a machine is raised as a `HearthError`. Entry points
print its findings and exit with status 2; any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from hearth.base.addresses import without_credentials


class HearthError(Exception):
    """One or more findings, each a whole sentence: the problem, its cause, its remedy.

    Addresses in them are shown without credentials, in texts of other programs too.
    """

    def __init__(self, *findings: str) -> None:
        self.findings: list[str] = [without_credentials(finding) for finding in findings]
        super().__init__("\n".join(self.findings))


class MachineError(HearthError):
    """The memory or the disk of this machine does not suffice; that of another one may."""


class ConfigError(HearthError):
    """A setting, preset or run file is wrong."""


class DataError(HearthError):
    """A data set cannot be used."""


class ModelError(HearthError):
    """A model cannot be found, fetched or loaded."""


class LaunchError(HearthError):
    """A run cannot be started on this node."""


class SupplyError(HearthError):
    """A model or data set that the nodes need cannot be fetched."""


class CheckpointError(HearthError):
    """A checkpoint cannot be written or read."""


class DiskError(CheckpointError, MachineError):
    """A checkpoint cannot be written, as this machine's disk is full or cannot be written."""


def check_all(*checks: Callable[[], object], error: type[HearthError] = ConfigError) -> None:
    """Make all checks; raise `error` with the findings of those that failed, each once.

    A `ConfigError` is the same on every node. What only this node may have is another `error`.
    """
    findings: list[str] = []
    for check in checks:
        try:
            check()
        except HearthError as found:
            findings += found.findings
    if findings:
        raise error(*dict.fromkeys(findings))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` for the known word nearest to `word`, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean '{near[0]}'?)" if near else ""
