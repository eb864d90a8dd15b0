"""Measured compute time of a rank by number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Speed:
    """Seconds that a rank computes for a micro-batch of full rows, by its size.

    Attributes:
        sizes: measured sizes, ascending from 1; larger ones are never computed.
        seconds: forward and backward pass together, for each size.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for a, b in zip(self.sizes, self.sizes[1:], strict=False))
        if not ascending or self.sizes[:1] != (1,) or len(self.sizes) != len(self.seconds):
            raise ValueError(f"one time for each size, and the sizes from 1 upwards, not {self}")
        if not all(0 < each < math.inf for each in self.seconds):
            raise ValueError(f"every time must be positive and finite, not {self.seconds}")

    @property
    def micro_batch(self) -> int:
        """The fastest size of the rank; on a tie the smallest, to save memory."""
        return max(
            zip(self.sizes, self.seconds, strict=True),
            key=lambda each: (each[0] / each[1], -each[0]),
        )[0]

    @property
    def rows_per_second(self) -> float:
        """Rows a second at that size."""
        return self.micro_batch / self.seconds[self.sizes.index(self.micro_batch)]

    def times(self, most: int) -> np.ndarray:
        """Return the seconds for 0, 1 … `most` rows, float64 (most + 1,), never falling.

        A measured curve may dip, but more rows never finish sooner than fewer.
        """
        rows = np.arange(1, most + 1)
        pieces = -(-rows // self.micro_batch)
        small, larger = np.divmod(rows, pieces)  # as `micro_batches` cuts them
        of_small, of_larger = (
            np.interp(size, self.sizes, self.seconds) for size in (small, small + 1)
        )
        seconds = (pieces - larger) * of_small + larger * of_larger
        return np.maximum.accumulate(np.concatenate([[0.0], seconds]))

    def of_rows(self, rows: int) -> float:
        """Return the seconds for `rows`, cut into micro-batches."""
        return float(self.times(rows)[-1])

    def no_larger_than(self, size: int) -> Speed:
        """Return a copy limited to micro-batches of `size` rows, the most that fit into memory."""
        kept = sum(each <= max(1, size) for each in self.sizes)
        return Speed(self.sizes[:kept], self.seconds[:kept])


UNKNOWN = Speed((1,), (1.0,))
"""Speed of an unmeasured rank: all count as equal until the first step is timed."""


def micro_batches(rows: int, most: int, least_pieces: int = 0) -> tuple[int, ...]:
    """Return the sizes of the micro-batches for `rows`, none above `most`.

    As few as possible, but at least `least_pieces` (some may be empty); and nearly equal,
    so that none needs more memory than necessary.
    """
    pieces = max(math.ceil(rows / most), least_pieces)
    return tuple(rows // pieces + (piece < rows % pieces) for piece in range(pieces))


def pieces_of(rows: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Return `rows` cut into pieces of these sizes."""
    return np.split(rows, np.cumsum(sizes)[:-1]) if len(sizes) else []
