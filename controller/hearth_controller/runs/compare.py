"""Comparison of two runs: their results side by side and the settings that differ. Pure."""

from __future__ import annotations

from typing import Any

from hearth_controller.runs.listing import cells
from hearth_controller.runs.observed import RunSeen
from hearth.base.errors import LaunchError
from hearth.base.text import NOT_KNOWN, aligned

# The name of a run and the run that it resumes do not affect training.
_NO_DIFFERENCE = frozenset({"run", "resume"})


def compare(one: RunSeen, other: RunSeen) -> list[str]:
    """Return the lines of a table with one column per run.

    Raises:
        LaunchError: the settings of one of them are not known.
    """
    first, second = (cells(run, digits=4) for run in (one, other))
    results = [(name if name != "run" else "", first[name], second[name]) for name in first]
    settings = differing(one, other)
    said = ["settings that differ:", *aligned(settings)] if settings else ["no setting differs"]
    return [line.rstrip() for line in [*aligned(results), "", *said]]


def differing(one: RunSeen, other: RunSeen) -> list[tuple[str, str, str]]:
    """Return the settings in which two runs differ: name and both values as one would type them.

    Raises:
        LaunchError: the settings of one of them are not known.
    """
    both = []
    for run in (one, other):
        if run.asked is None:
            raise LaunchError(
                f"the settings of {run.name} are not known: no node has a run.yml of it that this "
                "version of Hearth can read"
            )
        both.append(run.asked)
    first, second = both
    # A script run and a model run share no settings; a missing setting counts as None.
    return [
        (name, _typed(first.get(name)), _typed(second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name) and name not in _NO_DIFFERENCE
    ]


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return ":".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return NOT_KNOWN if value is None else str(value)
