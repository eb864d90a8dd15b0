"""Curves drawn with braille characters, eight dots a character. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]

_BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a character's dots, by row and column."""

_LABEL = 7
"""Characters of a label on the vertical axis."""

CURVE, MARK, AXIS, MARKER = "curve", "mark", "axis", "●"


@dataclass(frozen=True)
class Piece:
    """A piece of a line: its text, and whether it is of the curve, a mark or the axes."""

    text: str
    kind: str


def chart(
    curve: Sequence[Point], marks: Sequence[Point], columns: int, lines: int
) -> list[list[Piece]]:
    """Return a chart of this size: a curve through points, and marks.

    Without any point, or in too small a space, it is empty.
    """
    curve, marks = _finite(curve), _finite(marks)
    points = [*curve, *marks]
    wide, high = columns - _LABEL - 1, lines - 1
    if not points or wide < 10 or high < 3:
        return []
    (left, right), (low, top) = (_span(axis) for axis in zip(*points, strict=True))

    def place(point: Point) -> tuple[int, int]:
        """Return column and row of the dot of a point, from the top left."""
        across = (point[0] - left) / (right - left) * (2 * wide - 1)
        return round(across), round((top - point[1]) / (top - low) * (4 * high - 1))

    dots = {place(point) for point in curve}
    for pair in itertools.pairwise(curve):
        dots.update(_line(*map(place, pair)))
    cells = [[0] * wide for _ in range(high)]
    for column, row in dots:
        cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    places = {(column // 2, row // 4) for column, row in map(place, marks)}
    labels = {0: top, high // 2: top - (top - low) * (high // 2) / (high - 1), high - 1: low}
    drawn = [
        [Piece(_label(labels.get(row)), AXIS), *_pieces(cells[row], row, places)]
        for row in range(high)
    ]
    ends = f"step {left:.0f}", f"{right:.0f}"
    below = ends[0] + ends[1].rjust(wide - len(ends[0]))
    return [*drawn, [Piece(" " * (_LABEL + 1) + below, AXIS)]]


def _finite(points: Sequence[Point]) -> list[Point]:
    """Return the points that can be drawn."""
    return [point for point in points if all(map(math.isfinite, point))]


def _span(values: Sequence[float]) -> Point:
    """Return the range of an axis, which is not empty."""
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _line(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the dots between two dots."""
    count = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    parts = [number / count for number in range(count + 1)]
    return [
        (round(start[0] + part * (end[0] - start[0])), round(start[1] + part * (end[1] - start[1])))
        for part in parts
    ]


def _pieces(cells: Sequence[int], row: int, places: set[tuple[int, int]]) -> list[Piece]:
    """Return the pieces of a line behind its label."""
    characters = [
        (MARKER, MARK) if (column, row) in places else (chr(_BRAILLE + bits), CURVE)
        for column, bits in enumerate(cells)
    ]
    return [
        Piece("".join(text for text, _ in group), kind)
        for kind, group in itertools.groupby(characters, lambda each: each[1])
    ]


def _label(value: float | None) -> str:
    """Return a label of the vertical axis, with its line."""
    text = "" if value is None else f"{value:.2f}" if abs(value) < 1000 else f"{value:.3g}"
    return f"{text:>{_LABEL}}{'┤' if text else '│'}"
