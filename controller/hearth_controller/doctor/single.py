"""The table of nodes that have each computed by itself, one line per device and precision.

`scripts/single_gpu_test.py` shows it for one machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.nvidia import short_gpu
from hearth.base.text import aligned, wrapped
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.verify import MARKS, Level, Line

_TITLES = ("node", "GPU", "driver", "torch", "pass", "time", "memory", "off float64")
_LEVELS: dict[str, Level] = {"note": "good", "unused": "fault", "broken": "fault"}


def show_single(
    answers: Mapping[str, Mapping[str, Any]], gone: Mapping[str, str], locks: Mapping[str, str]
) -> tuple[list[Line], dict[str, Level]]:
    """Return the lines to show, and the level of each node.

    `answers` are by node those of the command `hearth.node single`; `gone` has the reason where a
    node gave none, else ''; `locks` are each node's `python_lock`: with `cpu` a GPU may be idle.
    """
    rows: list[tuple[Level, tuple[str, ...]]] = []
    below: list[Line] = []
    levels: dict[str, Level] = {}
    for name, answer in answers.items():
        texts = _texts(answer, gone[name], locks.get(name) == "cpu")
        found = {level for level, _ in texts}
        levels[name] = "fault" if "fault" in found else "advice" if "advice" in found else "good"
        rows += [(levels[name], row) for row in _rows(name, answer.get("facts") or {})]
        for level, text in texts:
            below += [(level, line) for line in wrapped(f"{name}: {text}", TABLE_WIDTH, "    ")]
    head, *body = aligned([_TITLES, *(row for _, row in rows)])
    lines: list[Line] = [(None, f"  {head}")]
    for (level, row), line in zip(rows, body, strict=True):
        lines.append((level, f"{MARKS[level] if row[0] else ' '} {line}".rstrip()))
    lines += below
    if "fault" not in levels.values():
        who = f"Each of {len(levels)} nodes" if len(levels) > 1 else next(iter(levels))
        lines.append(("good", f"{who} can train by itself."))
    return lines, levels


def _texts(answer: Mapping[str, Any], gone: str, idle: bool) -> list[tuple[Level, str]]:
    """Return everything to say about a node, with its level; an `idle` GPU is meant to be so."""
    faults = [gone] if gone else [*answer.get("findings", ())]
    if not faults and not answer.get("facts"):
        faults = ["it did not answer; -v shows more"]
    texts: list[tuple[Level, str]] = [("fault", fault) for fault in faults]
    for finding in (answer.get("facts") or {}).get("findings", ()):
        meant = idle and finding["level"] == "unused"
        text = f"{finding['text']} {finding['remedy']}".strip()
        texts.append(("advice" if meant else _LEVELS[finding["level"]], text))
    return texts


def _rows(name: str, facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a node's cells: one row per pass, at least one; only the first names the node."""
    machine = facts.get("machine", {"gpus": [], "driver": "", "torch": "", "cuda": ""})
    cuda = f", CUDA {machine['cuda']}" if machine["cuda"] else ""
    about = (short_gpu(machine["gpus"]), machine["driver"], f"{machine['torch'] or '–'}{cuda}")
    passes = [_cells(one) for one in facts.get("passes", ())]
    passes += _unsloth(facts.get("unsloth") or {})
    first = (name, *(cell or "–" for cell in about))
    return [
        (*(("",) * len(first) if number else first), *cells)
        for number, cells in enumerate(passes or [("–",) * 4])
    ]


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the figures of a pass."""
    where = f"{one['device']} {one['precision']}"
    if one["error"]:
        return (where, "failed", "–", "–")
    memory = f"{one['memory']} MiB" if one["memory"] else "–"
    return (where, f"{one['seconds']:.2f} s", memory, f"{one['difference']:.1e}")


def _unsloth(one: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the figures of Unsloth's pass; none if it was not tried."""
    if one.get("loss") is not None:
        return [("Unsloth 4 bits", f"{one['seconds']:.0f} s", "–", "–")]
    return [("Unsloth 4 bits", "failed", "–", "–")] if one.get("failed") else []
