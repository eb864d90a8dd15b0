"""Matplotlib figures as SVG to embed in a page, in colours that are CSS variables of the page.

One drawing serves light and dark. Matplotlib does not support variables: it draws placeholders,
which are replaced in its SVG.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

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


_STYLE = {
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": FAINT,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.labelsize": 11,
    "figure.constrained_layout.hspace": 0.06,
    "figure.constrained_layout.h_pad": 0.09,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "grid.color": GRID,
    "lines.linewidth": 1.6,
    "patch.edgecolor": PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "hearth",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.color": GRID,
    "ytick.labelcolor": FAINT,
    "ytick.left": False,
}
_NO_METADATA = {"Creator": None, "Date": None, "Format": None, "Type": None}


WIDE, NARROW = 900, 400
"""Widths of a figure in CSS pixels: on a computer, and on a phone."""


@contextmanager
def drawing(height: int, width: int) -> Iterator[Figure]:
    """Provide a figure of this size in CSS pixels, in the page's style."""
    with mpl.rc_context(_STYLE):
        # An SVG has 72 units per inch, and one unit is one pixel here.
        figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def as_svg(figure: Figure, name: str, description: str) -> str:
    """Return a figure as an `<svg>` element.

    `name` is unique in the page; `description` is its label for screen readers.
    """
    written = io.StringIO()
    figure.savefig(written, format="svg", metadata=_NO_METADATA)
    text = written.getvalue()
    text = text[text.index("<svg") :]
    # The style would apply to the whole page, which already includes it.
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    # Make ids unique, since other figures of the page use the same ones.
    text = re.sub(r'( id="|url\(#|xlink:href="#)', rf"\g<1>{name}-", text)
    text = re.sub(r'font: ([\d.]+)px [^;"]*', r"font-size: \1px", text)
    for size in ("width", "height"):  # the page sets the size
        text = re.sub(rf'(<svg [^>]*?) {size}="[^"]*"', r"\1", text)
    head = f'<svg role="img" aria-label="{escape(description)}" '
    return as_variables(text.replace("<svg ", head, 1))
