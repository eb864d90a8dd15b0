"""Computes this rank's rows, in smaller micro-batches after running out of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.plan.speed import micro_batches, pieces_of
from hearth.ranks.memory import is_out_of_memory, row_too_large, too_large_together
from hearth.trainer.work import Work

T = TypeVar("T")


def retry_smaller(
    attempt: Callable[[Sequence[int]], T],
    rows: Rows,
    own: np.ndarray,
    most: int,
    turns: int,
    release: Callable[[], None],
    say: Callable[[str], None],
) -> tuple[T, int]:
    """Return the result of `attempt` and the maximum number of rows at once that fitted.

    `attempt` gets the sizes of the micro-batches of the rows numbered `own`; after an out-of-memory
    error it is called again, after `release`, with half as many rows at once. With `turns` all
    ranks compute that many micro-batches together (see `Plan.turns`), and no rank can retry alone.

    Raises `HearthError` if one row alone does not fit, or with `turns` the planned number.
    """
    while True:
        sizes = micro_batches(len(own), most, turns)
        try:
            return attempt(sizes), most
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        largest = max(sizes)
        if turns:
            raise too_large_together(largest)
        if largest == 1:
            raise row_too_large(int(rows.tokens[own].max()))
        most = largest // 2
        release()
        say(f"{largest} rows at once do not fit into memory; continuing with {most}")


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

    `clear` sets all gradients to zero; `scale` multiplies a loss by the loss scaler's factor.
    `work` is told of each micro-batch.
    """

    def __init__(
        self,
        model: TrainableModel,
        rows: Rows,
        autocast: Callable[[], AbstractContextManager[object]],
        clear: Callable[[], None],
        scale: Callable[[torch.Tensor], torch.Tensor],
        work: Work,
    ) -> None:
        self._model, self._rows, self._work = model, rows, work
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

        After an out-of-memory error all rows are computed again (see `retry_smaller`): nothing has
        been exchanged yet, and the sum does not depend on the micro-batch size. `seed_of` maps a
        row to its seed: the first of a micro-batch seeds the adapter's or the model's dropout, each
        its own noise.
        """
        started, device = time.perf_counter(), self._model.device

        def attempt(sizes: Sequence[int]) -> float:
            self._clear()
            self._model.before_step()
            loss = torch.zeros((), dtype=torch.float64, device=device)
            for part, numbers in enumerate(pieces_of(own, sizes)):
                self._work.begin_rows("micro-batch", part, self._rows.tokens[numbers])
                batch = self._rows.batch(numbers)
                if seeds := [seed_of(int(number)) for number in numbers]:
                    torch.manual_seed(seeds[0])
                    self._model.draw_noise(batch, seeds)
                with self._autocast():
                    part = self._model.loss(batch, denominator)
                self._scale(part).backward()
                loss += part.detach()
            return loss.item()

        loss, most = retry_smaller(attempt, self._rows, own, most, turns, self._model.release, say)
        return Computed(loss, time.perf_counter() - started, most)

    def not_finite(self, own: np.ndarray, denominator: int, turns: int = 0) -> list[int]:
        """Return the rows of `own` whose gradient, computed alone, is not finite.

        The list is empty if only the sum of all gradients overflowed. Clears the gradients. `turns`
        as in `gradients`.
        """
        found: list[int] = []
        for part, row in enumerate(pieces_of(own, micro_batches(len(own), 1, turns))):
            self._work.begin_rows("search for non-finite rows", part, self._rows.tokens[row])
            self._clear()
            with self._autocast():
                part = self._model.loss(self._rows.batch(row), denominator)
            self._scale(part).backward()
            gradients = (parameter.grad for _, parameter in self._model.trainable())
            if not all(bool(each.isfinite().all()) for each in gradients if each is not None):
                found.extend(row.tolist())
        self._clear()
        return found
