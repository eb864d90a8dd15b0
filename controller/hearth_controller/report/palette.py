"""The colours of a figure as CSS variables of the page: one drawing for light and dark.

Matplotlib does not support variables: it draws placeholders, which are replaced in its SVG.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

INK, FAINT, GRID, PAPER = "#010101", "#010102", "#010103", "#010104"
"""Text, muted text, grid lines, and the background of the page."""

LOSS, HELD_OUT, ALARM = "#010105", "#010106", "#010107"
"""Curves of the training loss and of the evaluation on held-out data, and errors."""

_SERIES = [f"#0102{number:02x}" for number in range(8)]

_VARIABLES: Mapping[str, str] = {
    INK: "ink",
    FAINT: "faint",
    GRID: "grid",
    PAPER: "paper",
    LOSS: "loss",
    HELD_OUT: "held-out",
    ALARM: "alarm",
} | {colour: f"node-{number}" for number, colour in enumerate(_SERIES)}


def colours_of(nodes: Sequence[str]) -> dict[str, str]:
    """Return the colour of each node; they repeat from the ninth node on."""
    return {node: _SERIES[number % len(_SERIES)] for number, node in enumerate(nodes)}


def as_variables(svg: str) -> str:
    """Replace each placeholder in an SVG with `var(--NAME)`."""
    return re.sub(
        "|".join(_VARIABLES), lambda found: f"var(--{_VARIABLES[found[0]]})", svg, flags=re.I
    )
