"""The catalogue of known errors: maps the text of an error to its cause and cure.

The entries are in `catalogue.yml`, which explains how to add one. Hearth's own errors contain
their cure and have no entry.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hearth.diagnose.log import beginnings, kernel_lines, killed_by, last_error, last_launch

CATALOGUE = Path(__file__).with_name("catalogue.yml")

_WITHOUT_A_WORD = re.compile(r"killed by signal|ended with status")
_OF_A_GPU = re.compile(r"CUDA|cuDNN|cuBLAS|NCCL|NVML", re.IGNORECASE)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


Pattern = Annotated[re.Pattern[str], BeforeValidator(_compiled)]


class ErrorSample(BaseModel):
    """A real error text and its source: an address, or the test that provokes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    text: str
    source: str = Field(pattern=r"^(https://\S+|tests/\S+\.py::test_\w+)$")
    kernel: str = ""

    @property
    def provoked(self) -> bool:
        """Whether a test provokes the error."""
        return self.source.startswith("tests/")


class KnownError(BaseModel):
    """One known error: patterns that match it, its cause and its cure.

    `local`: it is the error of one machine, which need not come on another one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    id: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    local: bool = False
    match: tuple[Pattern, ...] = Field(min_length=1)
    unless: tuple[Pattern, ...] = ()
    cause: str
    cure: str
    seen: tuple[ErrorSample, ...] = Field(min_length=1)

    def fits(self, text: str) -> bool:
        """Return whether `text` contains this error."""
        return any(pattern.search(text) for pattern in self.match) and not any(
            pattern.search(text) for pattern in self.unless
        )


@cache
def sections() -> dict[str, tuple[KnownError, ...]]:
    """Return the entries of the catalogue by heading, in the order of the file."""
    given = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    return {
        heading: tuple(KnownError.model_validate(entry) for entry in section)
        for heading, section in given.items()
    }


def entries() -> tuple[KnownError, ...]:
    """Return all entries, in matching order."""
    return tuple(entry for section in sections().values() for entry in section)


def diagnosis(error: str, log: str = "") -> KnownError | None:
    """Return the catalogue entry that explains an error, or None.

    `error` is the text as it was printed (`Type: message`). `log` is the log of its node: its
    kernel lines are searched too if a rank ended without an error, since a killed process cannot
    print why; for a GPU error, only the kernel's lines about the GPU.
    """
    error, said = "\n".join(beginnings(error)), kernel_lines(log)
    if not _WITHOUT_A_WORD.search(error):
        said = [line for line in said if "NVRM:" in line and _OF_A_GPU.search(error)]
    text = "\n".join([error, *said])
    return next((entry for entry in entries() if entry.fits(text)), None)


def is_local(error: str) -> bool:
    """Return whether an error is that of one machine; an unknown one is not."""
    found = diagnosis(error)
    return found is not None and found.local


def explained(found: KnownError | None) -> list[str]:
    """Return the lines to print below an error: its cause and cure."""
    if found is None:
        return ["cause: not known to Hearth; the error above is the first, as it was printed"]
    return [f"cause: {found.cause}", f"cure: {found.cure}"]


def explanation(message: str, log: str, by_rank: bool) -> list[str]:
    """Return the lines on cause and cure to print below the recorded `message` of a failure.

    `log` is the log of its node, '' if it is not here. Hearth's own errors say what to do and need
    none. An unknown cause is mentioned only for an error of a rank (`by_rank`).
    """
    own = last_error(last_launch(log))
    if own and own.has_cure and own.message == message:
        return []
    found = diagnosis(message, log)
    return explained(found) if found or by_rank else []


def ended_by(status: int, errors: str) -> tuple[str, list[str]]:
    """Return the error that ended a process, on one line, and its cause and cure if known.

    `errors` is the process's error output.
    """
    if status < 0:
        return f"the process was {killed_by(-status)}", []
    error = last_error(errors)
    if error is None:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        return f"the process ended with status {status}: {last}", []
    cure = [] if error.has_cure else explained(diagnosis(error.message))
    return " ".join(error.message.split()), cure
