"""Gradients of this rank's rows of a step, in smaller micro-batches after running out of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.plan.speed import micro_batches, pieces_of
from hearth.ranks.memory import is_out_of_memory, release, row_too_large, too_large_together


@dataclass(frozen=True)
class Computed:
    """Loss, time and micro-batch size of one rank's rows in a step.

    Attributes:
        loss: their part of the global mean.
        seconds: from the first row to the last gradient, failed attempts included.
        micro_batch: rows at once that fit into the memory: as planned, or fewer after an OOM.
    """

    loss: float
    seconds: float
    micro_batch: int


class Compute:
    """Forward and backward passes over this rank's rows.

    Args:
        clear: sets all gradients to zero.
        scale: multiplies a loss by the loss scaler's factor.
    """

    def __init__(
        self,
        model: TrainableModel,
        rows: Rows,
        autocast: Callable[[], AbstractContextManager[object]],
        clear: Callable[[], None],
        scale: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._model, self._rows = model, rows
        self._autocast, self._clear, self._scale = autocast, clear, scale

    def gradients(
        self,
        own: np.ndarray,
        most: int,
        denominator: int,
        seed_of: Callable[[int], int],
        say: Callable[[str], None],
        turns: int = 0,
    ) -> Computed:
        """Add the gradients of the rows numbered `own`, at most `most` at once, to cleared ones.

        After an out-of-memory error all rows are computed again, half as many at once: nothing has
        been exchanged yet, and the sum does not depend on the micro-batch size. `seed_of` maps the
        first row of a micro-batch to its seed, for the adapter's or the model's dropout. With
        `turns` all ranks compute that many micro-batches together (see `Plan.turns`), and no rank
        can retry alone.

        Raises `HearthError` if one row alone does not fit, or with `turns` the planned number.
        """
        started = time.perf_counter()
        while True:
            self._clear()
            self._model.before_step()
            sizes = micro_batches(len(own), most, turns)
            loss = self._attempt(own, sizes, denominator, seed_of)
            if loss is not None:
                return Computed(loss, time.perf_counter() - started, most)
            largest = max(sizes)
            if turns:
                raise too_large_together(largest)
            if largest == 1:
                raise row_too_large(int(self._rows.tokens[own].max()))
            most = largest // 2
            release(self._model.device)
            say(f"{largest} rows at once do not fit into the memory; going on with {most}")

    def not_finite(self, own: np.ndarray, denominator: int, turns: int = 0) -> list[int]:
        """Return the rows of `own` whose gradient, computed alone, is not finite.

        The list is empty if only the sum of all gradients overflowed. Clears the gradients. `turns`
        as in `gradients`.
        """
        found: list[int] = []
        for row in pieces_of(own, micro_batches(len(own), 1, turns)):
            self._clear()
            with self._autocast():
                part = self._model.loss(self._rows.batch_or_blank(row), denominator)
            self._scale(part).backward()
            gradients = (parameter.grad for _, parameter in self._model.trainable())
            if not all(bool(each.isfinite().all()) for each in gradients if each is not None):
                found.extend(row.tolist())
        self._clear()
        return found

    def _attempt(
        self,
        own: np.ndarray,
        sizes: Sequence[int],
        denominator: int,
        seed_of: Callable[[int], int],
    ) -> float | None:
        """Return this rank's loss, or None if a micro-batch did not fit into the memory."""
        loss = torch.zeros((), dtype=torch.float64, device=self._model.device)
        try:
            for numbers in pieces_of(own, sizes):
                if len(numbers):
                    torch.manual_seed(seed_of(int(numbers[0])))
                with self._autocast():
                    part = self._model.loss(self._rows.batch_or_blank(numbers), denominator)
                self._scale(part).backward()
                loss += part.detach()
            return loss.item()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None
