"""Settings that have another name now.

A person who types the old name is told the new one. Files of earlier runs are read with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hearth.base.errors import did_you_mean

RENAMED: Mapping[str, str] = {
    "evaluate": "eval_held_out",
    "push_private": "private",
}
"""The present name of each setting by its old one."""


def hint(name: str, known: Iterable[str]) -> str:
    """Return the present name of an unknown setting, or the most similar of the `known` ones."""
    if name in RENAMED:
        return f"; it is called {RENAMED[name]} now"
    return did_you_mean(name, known)


def with_present_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that an earlier version recorded, under the present names."""
    return {RENAMED.get(name, name): value for name, value in recorded.items()}
