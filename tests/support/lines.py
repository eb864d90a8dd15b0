"""Find the line of a screen that names given facts, however it is worded."""

from __future__ import annotations

from contextlib import suppress

from support.facts import assert_names


def assert_line(screen: str, *facts: object) -> None:
    """Assert that one line of `screen` names all these facts."""
    for line in screen.splitlines():
        with suppress(AssertionError):
            assert_names(line, *facts)
            return
    raise AssertionError(f"no line names {facts} in:\n{screen}")
