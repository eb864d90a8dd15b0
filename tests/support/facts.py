"""Check that a message names its facts, however it is worded."""

from __future__ import annotations

import re


def assert_names(text: str, *facts: object) -> None:
    """Assert that each fact occurs in `text` as a whole word, number, path or command."""
    missing = [
        fact
        for fact in map(str, facts)
        if not re.search(rf"(?<!\w)(?<!\d\.){re.escape(fact)}(?!\w)(?!\.\d)", text)
    ]
    assert not missing, f"{missing} not named in:\n{text}"
