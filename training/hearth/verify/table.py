"""The table of a verified cluster, as lines with a level each. No I/O."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Mapping, Sequence

from hearth.verify.judgement import Advice, Level, Observation, link_mbit, short_gpu

MARKS: dict[Level, str] = {"good": "✓", "advice": "!", "fault": "✗"}
_NETWORK = ("node", "rank", "address", "NIC", "link")
_MACHINE = ("GPU", "memory", "driver", "torch")
_GAP = "  "

Line = tuple[Level | None, str]


def table(nodes: Sequence[Observation], advice: Mapping[str, Advice], columns: int) -> list[Line]:
    """Return the lines; if `columns` are too few, a second table of the machines follows below."""
    cells = {node.name: _cells(node, nodes) for node in nodes}
    whole = _block(nodes, cells, advice, (*_NETWORK, *_MACHINE))
    if max(width(text) for _, text in whole) <= columns:
        lines = whole
    else:
        lines = _block(nodes, cells, advice, _NETWORK)
        lines += [(None, ""), *_block(nodes, cells, advice, ("node", *_MACHINE))]
    for node in nodes:
        verdict = advice[node.name]
        if verdict.text:
            lines += [(verdict.level, line) for line in _wrapped(node.name, verdict.text, columns)]
    return lines


def width(text: str) -> int:
    """Return the width of `text` on a terminal, in columns."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def speed(mbit: float | None) -> str:
    """Format a link's speed: `940 Mbit/s`, `9.4 Gbit/s`, or – if unknown."""
    if mbit is None:
        return "–"
    return f"{mbit / 1000:.1f} Gbit/s" if mbit >= 1000 else f"{mbit:.0f} Mbit/s"


def memory(mebibytes: int) -> str:
    """Format a GPU's memory as it is sold, in whole GB."""
    return f"{round(mebibytes / 1024)} GB"


def _cells(node: Observation, nodes: Sequence[Observation]) -> dict[str, str]:
    facts = node.facts
    gpus = facts.get("gpus", [])
    memories = [gpu["memory_mib"] for gpu in gpus if gpu["memory_mib"]]
    return {
        "node": node.name,
        "rank": str(node.rank),
        "address": node.address,
        "NIC": facts.get("interface") or "–",
        "link": speed(link_mbit(node.name, nodes)),
        "GPU": short_gpu(gpus) or "–",
        "memory": memory(min(memories)) if memories else "–",
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
    wide = {
        title: max(width(title), *(width(row[title]) for row in cells.values())) for title in titles
    }

    def line(mark: str, words: Mapping[str, str]) -> str:
        padded = (words[title] + " " * (wide[title] - width(words[title])) for title in titles)
        return f"{mark} {_GAP.join(padded)}".rstrip()

    lines: list[Line] = [(None, line(" ", {title: title for title in titles}))]
    for node in nodes:
        level = advice[node.name].level
        lines.append((level, line(MARKS[level], cells[node.name])))
    return lines


def _wrapped(name: str, text: str, columns: int) -> list[str]:
    """Wrap the advice for a node to `columns`; commands are not broken at hyphens."""
    return textwrap.wrap(
        f"{name}: {text}",
        max(columns, 40),
        subsequent_indent="    ",
        break_on_hyphens=False,
        break_long_words=False,
    )
