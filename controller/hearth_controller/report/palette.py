"""The colours of a figure as the page's CSS variables, so that light and dark need one drawing.

Matplotlib knows no variables: it draws with stand-ins, which are replaced in the SVG it writes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

INK, FAINT, GRID, PAPER = "#010101", "#010102", "#010103", "#010104"
"""Text, text that stands back, lines behind the curves, and the page itself."""

LOSS, HELD_OUT, ALARM = "#010105", "#010106", "#010107"
"""Curves of the training loss and of what is judged by held-out data, and what went wrong."""

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
    """Return the colour of each node; from the ninth on they begin anew."""
    return {node: _SERIES[number % len(_SERIES)] for number, node in enumerate(nodes)}


def as_variables(svg: str) -> str:
    """Return the text of an SVG with `var(--NAME)` for each stand-in."""
    return re.sub(
        "|".join(_VARIABLES), lambda found: f"var(--{_VARIABLES[found[0]]})", svg, flags=re.I
    )
