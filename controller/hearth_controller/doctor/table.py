"""The results of doctor as text: a mark per check and node, then problems with fixes. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.text import fitted, wrapped
from hearth_controller.base.verdict import MARKS
from hearth_controller.doctor.finding import Outcome

_SIGNS: dict[Outcome, str] = {
    "good": MARKS["good"],
    "degraded": MARKS["degraded"],
    "broken": MARKS["broken"],
    "not applicable": "–",
    "not checked": "?",
}
_WIDEST, _SEEN = 100, 60
"""Most columns of a line, and of the column `seen` in the table of marks."""


def doctor_lines(examined: Mapping[str, Any], columns: int) -> list[str]:
    """Return the lines for a result object from `hearth_controller.doctor.examine`."""
    checks = examined["checks"]
    lines = fitted(_marks(examined["nodes"], checks), columns)
    columns = min(columns, _WIDEST)
    for bad in ("broken", "degraded"):
        lines += _troubles(checks, bad, columns)
    lines.append("")
    for outcome in ("not checked", "not applicable"):
        lines += _without(checks, outcome, columns)
    for node, what in examined["mended"].items():
        lines.append(f"mended on {node}: {', '.join(what)}")
    for node, what in examined["unmended"].items():
        lines.append(f"not mended on {node}, or not all of it: {', '.join(what)}")
    good = sum(each["outcome"] == "good" for each in checks)
    mark = MARKS[examined["verdict"]]
    if examined["verdict"] == "good":
        return [*lines, f"{mark} all is well: {good} checks"]
    broken = sum(each["outcome"] == "broken" for each in checks)
    bad = f"{broken} broken, {len(examined['reasons']) - broken} degraded"
    return [*lines, f"{mark} {bad}, {good} good"]


def _marks(nodes: Sequence[str], checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row per check: a mark per node, and the observations on good nodes."""
    rows = [("check", *nodes, "seen")]
    for name in dict.fromkeys(each["check"] for each in checks):
        its = [each for each in checks if each["check"] == name]
        seen = dict.fromkeys(each["seen"] for each in its if each["outcome"] == "good")
        signs = (_SIGNS[each["outcome"]] for each in its)
        rows.append((name, *signs, textwrap.shorten(" · ".join(seen), _SEEN, placeholder=" …")))
    return rows


def _troubles(checks: Sequence[Mapping[str, Any]], outcome: str, columns: int) -> list[str]:
    """Return the findings with this outcome; nodes with the same finding share an entry."""
    together: dict[tuple[str, ...], list[str]] = {}
    for each in checks:
        if each["outcome"] == outcome:
            same = (each["check"], each["seen"], each["why"], each["fix"])
            together.setdefault(same, []).append(each["node"])
    lines = []
    for (check, seen, why, fix), nodes in together.items():
        text = f"{MARKS[outcome]} {', '.join(nodes)}: {check}: {seen}: {why}"
        lines += ["", *wrapped(text, columns, "  "), *wrapped(f"  fix: {fix}", columns, "     ")]
    return lines


def _without(checks: Sequence[Mapping[str, Any]], outcome: Outcome, columns: int) -> list[str]:
    """Return the findings without a result, one line per reason."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for each in checks:
        if each["outcome"] == outcome:
            nodes = reasons.setdefault(each["seen"], {}).setdefault(each["check"], [])
            nodes.append(each["node"])
    lines = []
    for reason, by_check in reasons.items():
        nodes = dict.fromkeys(node for each in by_check.values() for node in each)
        where = f"{outcome} on {', '.join(nodes)}"
        text = f"{_SIGNS[outcome]} {where}: {', '.join(by_check)} ({reason})"
        lines += wrapped(text, columns, "  ")
    return lines
