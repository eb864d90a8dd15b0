"""The table of a verified cluster, as lines with a level each. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hearth.base.nvidia import short_gpu
from hearth.base.text import card_memory, link_speed, wrapped
from hearth_controller.doctor.judgement import Advice, Level, Observation, link_mbit

MARKS: dict[Level, str] = {"good": "✓", "advice": "!", "fault": "✗"}
_NETWORK = ("node", "rank", "address", "NIC", "link")
_MACHINE = ("GPU", "memory", "driver", "torch")
_GAP = "  "

Line = tuple[Level | None, str]


def table(nodes: Sequence[Observation], advice: Mapping[str, Advice], columns: int) -> list[Line]:
    """Return the lines; if `columns` are too few, a second table of the machines follows below."""
    cells = {node.name: _cells(node, nodes) for node in nodes}
    whole = _block(nodes, cells, advice, (*_NETWORK, *_MACHINE))
    if max(len(text) for _, text in whole) <= columns:
        lines = whole
    else:
        lines = _block(nodes, cells, advice, _NETWORK)
        lines += [(None, ""), *_block(nodes, cells, advice, ("node", *_MACHINE))]
    for node in nodes:
        verdict = advice[node.name]
        if verdict.text:
            told = wrapped(f"{node.name}: {verdict.text}", columns, "    ")
            lines += [(verdict.level, line) for line in told]
    return lines


def _cells(node: Observation, nodes: Sequence[Observation]) -> dict[str, str]:
    facts = node.facts
    gpus = facts.get("gpus", [])
    memories = [gpu["memory_mib"] for gpu in gpus if gpu["memory_mib"]]
    return {
        "node": node.name,
        "rank": str(node.rank),
        "address": node.address,
        "NIC": facts.get("interface") or "–",
        "link": link_speed(link_mbit(node.name, nodes)),
        "GPU": short_gpu(gpus) or "–",
        "memory": card_memory(min(memories)) if memories else "shared" if gpus else "–",
        "driver": gpus[0]["driver"] if gpus else "–",
        "torch": facts.get("torch") or "–",
    }


def _block(
    nodes: Sequence[Observation],
    cells: Mapping[str, Mapping[str, str]],
    advice: Mapping[str, Advice],
    titles: Sequence[str],
) -> list[Line]:
    """Return a heading and one line per node."""
    rows = [titles, *([cells[node.name][title] for title in titles] for node in nodes)]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    levels = [None, *(advice[node.name].level for node in nodes)]
    lines: list[Line] = []
    for level, row in zip(levels, rows, strict=True):
        padded = (f"{cell:<{most}}" for cell, most in zip(row, wide, strict=True))
        lines.append((level, f"{MARKS[level] if level else ' '} {_GAP.join(padded)}".rstrip()))
    return lines
