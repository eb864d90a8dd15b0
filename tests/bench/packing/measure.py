"""Useful tokens a second of one model, by how examples become rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from hearth.data.rows import IGNORED, Batch, Rows
from hearth.model.backend import TrainableModel
from hearth.plan.speed import micro_batches, pieces_of
from hearth.ranks.world import World
from hearth.trainer.compute import Compute
from hearth.trainer.objective import NextToken, StepCounts
from hearth.trainer.work import Work


class PaddedRows:
    """Rows of one example each, all filled up to `length` as a fixed `max_length` does it."""

    def __init__(self, rows: Rows, length: int) -> None:
        self._rows, self._length = rows, length
        self.tokens, self.label_tokens = rows.tokens, rows.label_tokens

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, filled up; the padding is a document of its own."""
        batch = self._rows.batch(indices)
        missing = self._length - batch.input_ids.shape[1]

        def filled(values: np.ndarray, by: int) -> np.ndarray:
            return np.pad(values, ((0, 0), (0, missing)), constant_values=by)

        positions = filled(batch.position_ids, 0)
        lengths: list[int] = []
        for line, tokens in enumerate(self.tokens[np.asarray(indices)].tolist()):
            positions[line, tokens:] = np.arange(self._length - tokens)
            lengths += [tokens, self._length - tokens]
        return Batch(filled(batch.input_ids, 0), filled(batch.labels, IGNORED), positions, lengths)


def cost(
    model: TrainableModel, rows: Rows | PaddedRows, own: np.ndarray, at_once: int
) -> dict[str, float]:
    """Return the cost of the rows numbered `own`, forward and backward, `at_once` rows at a time.

    The seconds are of processor time, which other programs on the computer do not lengthen; tokens
    are no padding, positions are both.
    """
    clear = model.network.zero_grad
    scale, work = lambda loss: loss, Work(World())
    compute = Compute(model, NextToken(), rows, nullcontext, clear, scale, work)
    began = time.process_time()
    compute.gradients(own, at_once, StepCounts(int(rows.label_tokens[own].sum())), int, print)
    seconds = time.process_time() - began
    pieces = pieces_of(own, micro_batches(len(own), at_once))
    positions = sum(rows.batch(piece).input_ids.size for piece in pieces)
    tokens = int(rows.tokens[own].sum())
    return {"seconds": round(seconds, 3), "tokens": tokens, "positions": positions}
