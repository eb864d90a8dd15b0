"""Check that a message names its facts, however it is worded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


def assert_names(text: str, *facts: object) -> None:
    """Assert that each fact occurs in `text`, and not as a part of a longer word or number."""
    missing = [fact for fact in map(str, facts) if not _whole(fact).search(text)]
    assert not missing, f"{missing} not named in:\n{text}"


@contextmanager
def refuses(
    kind: type[BaseException], *facts: object
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Require the block to raise `kind`, with a message that names these facts."""
    with pytest.raises(kind) as caught:
        yield caught
    assert_names(str(caught.value), *facts)


def _whole(fact: str) -> re.Pattern[str]:
    """Return the pattern of `fact`, where an end that is a letter or a digit ends a word."""
    before = r"(?<!\w)(?<!\d\.)" if re.match(r"\w", fact) else ""
    after = r"(?!\w)(?!\.\d)" if re.search(r"\w$", fact) else ""
    return re.compile(before + re.escape(fact) + after)


def assert_line(screen: str, *facts: object) -> None:
    """Assert that one line of `screen` names all these facts."""
    for line in screen.splitlines():
        with suppress(AssertionError):
            assert_names(line, *facts)
            return
    raise AssertionError(f"no line names {facts} in:\n{screen}")
