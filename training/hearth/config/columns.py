"""The `columns` setting: the data's own names for the columns that Hearth reads."""

from __future__ import annotations

from typing import Any

import yaml

from hearth.base.errors import did_you_mean
from hearth.base.text import cut
from hearth.data.columns import NAMES

_FORM = "write question=frage,answer=antwort, or in a file {question: frage, answer: antwort}"


def parse_columns(value: Any) -> Any:
    """Turn `question=frage,answer=antwort` or a mapping into the data's name of each column.

    Raises `ValueError` with everything that is wrong with it.
    """
    if isinstance(value, str):
        value = _from_text(value.strip())
    if not isinstance(value, dict):
        return value
    findings, names, owns = [], list(map(str, value)), list(map(str, value.values()))
    for name, own in zip(names, owns, strict=True):
        if name not in NAMES:
            findings.append(
                f"Hearth reads no column '{name}'{did_you_mean(name, NAMES)}; it reads "
                f"{', '.join(NAMES)}"
            )
        if not own or owns.count(own) > 1:
            findings.append(f"'{own}' is given for {name}, and each needs a column of its own")
    if findings:
        raise ValueError("; ".join([*findings, _FORM]))
    return dict(zip(names, owns, strict=True))


def _from_text(text: str) -> Any:
    """Return the mapping that `text` is the form of."""
    if text.lower() in ("", "none", "null"):
        return {}
    if text.startswith("{"):
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            value = None
        if isinstance(value, dict):
            return value
        raise ValueError(
            f"this mapping is not whole (ansible-playbook ends it at a space); {_FORM}"
        )
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name.strip() and equals for name, equals, _ in parts):
        raise ValueError(f"{cut(repr(text))} is no list of names; {_FORM}")
    names = [name.strip() for name, _, _ in parts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is given twice; {_FORM}")
    return {name.strip(): own.strip() for name, _, own in parts}
