"""The table of `hearth lend`: each node's word on lending, and the run that has it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.text import NOT_KNOWN, aligned, plain
from hearth.lend.choice import ON, RETURNS

_LEAVES = "leaves after its step"


def lending_lines(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return the table's lines, from each node's facts; None for a node that did not answer.

    A node with findings has no facts, and no line.
    """
    rows = [["node", "lends", "until", "run", ""]]
    for name, facts in answers.items():
        if facts is None:
            rows.append([name, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, "not answered"])
        elif facts:
            until = facts["until"] if facts["word"] != "auto" else None
            rows.append([name, facts["word"], until or NOT_KNOWN, *_of_run(facts)])
    return [line.rstrip() for line in aligned(rows)] if len(rows) > 1 else []


def _of_run(facts: Mapping[str, Any]) -> Sequence[str]:
    """Return the name of a node's run, and a clause on whether it has the machine."""
    run, since = facts["run"], f" since {facts['since']}" if facts["since"] else ""
    if facts["trouble"] and not run:
        return NOT_KNOWN, plain(facts["trouble"])
    if not run:
        return NOT_KNOWN, "no run is under way"
    if facts["away"] and facts["word"] == ON:  # the reason is that of a moment ago
        return run, f"away{since}; {RETURNS}"
    if facts["away"]:
        return run, f"away{since}: {plain(facts['away'])}"
    if facts["word"] != "off":
        return run, f"has the machine{since}"
    if not facts["lends"]:
        return run, "stays to its end: it was started without lending (`hearth stop` ends it)"
    return run, _LEAVES
