"""The first failure of a run, found in the logs of all its nodes: one node and one error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hearth.diagnose.catalogue import diagnosis
from hearth.diagnose.log import beginnings, first_failure, is_echo, last_error, last_launch

_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_OF_RANKS = re.compile(rf"^hearth: {_TIME} ", re.MULTILINE)
_ENDED = re.compile(rf"^hearth: (?P<time>{_TIME}) torchrun ended", re.MULTILINE)
_VERDICT = re.compile(
    rf"^hearth: {_TIME} failed: (?P<node>[^\s:]+): (?P<message>.+(?:\n    .+)*)", re.MULTILINE
)


@dataclass(frozen=True)
class FirstFailure:
    """The node where a run failed first and its error; `has_cure`: reported by Hearth itself."""

    node: str
    message: str
    has_cure: bool = False


def failure_of(logs: Mapping[str, str]) -> FirstFailure | None:
    """Return the first failure of a run, or None if no log shows any.

    `logs` maps nodes to texts. In order of trust: the earliest error that is not an echo, by the
    supervisors' clocks; the cause that the supervisors agreed on, which covers lost nodes too; an
    echo; and in a text that is no log of ranks (but of the kernel or Ansible) the first line that
    matches the catalogue.
    """
    launches = {node: last_launch(text) for node, text in logs.items()}
    failures = []
    for node, text in sorted(launches.items(), key=lambda item: _ended(item[1])):
        if error := last_error(text):
            failures.append(FirstFailure(node, error.message, error.has_cure))
    first = first_failure(failures)
    if first and not is_echo(first.message):
        return first
    return _agreed(launches) or first or _known_line(launches)


def _ended(text: str) -> str:
    """Return the time when torchrun ended, as sortable text; `~` (last) if the log lacks it."""
    found = _ENDED.search(text)
    return found["time"] if found else "~"


def _agreed(logs: Mapping[str, str]) -> FirstFailure | None:
    """Return the failure that the supervisors agreed on and logged."""
    for text in logs.values():
        if found := _VERDICT.search(text):
            message = found["message"].replace("\n    ", "\n")
            own = diagnosis(message) is None and not is_echo(message)
            return FirstFailure(found["node"], message, has_cure=own)
    return None


def _known_line(logs: Mapping[str, str]) -> FirstFailure | None:
    """Return the first line that matches the catalogue.

    Logs of ranks are skipped: if a rank continued after a line, it is no failure.
    """
    for node, text in logs.items():
        for line in [] if _OF_RANKS.search(text) else beginnings(text):
            if diagnosis(line):
                return FirstFailure(node, line.strip())
    return None
