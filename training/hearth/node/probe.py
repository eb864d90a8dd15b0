"""The measurement: forward and backward pass of micro-batches, until larger ones gain nothing."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from hearth.data.rows import Rows
from hearth.fit.estimate import OF_ROUNDS
from hearth.model.backend import TrainableModel
from hearth.plan.speed import Speed
from hearth.ranks.memory import is_out_of_memory, row_too_large

_REPEATS = 3
_LONG_ENOUGH = 3.0
"""Seconds after which a size is not measured again: slow machines vary little."""

_GAIN = 1.03
"""Least speedup per row of a larger micro-batch; below it the search ends."""


@dataclass(frozen=True)
class Measured:
    """Measurement of one rank.

    Attributes:
        speed: seconds by micro-batch.
        row_tokens: tokens of the longest rows of the data, which were used to measure.
        exchange_bytes: size of the gradients that a step exchanges.
        saturated: whether the search ended because a larger micro-batch gained nothing or did not
            fit; otherwise it ended at the given maximum.
    """

    speed: Speed
    row_tokens: int
    exchange_bytes: int
    saturated: bool


def reserve(learned: Iterable[torch.Tensor], rounds: bool) -> list[torch.Tensor]:
    """Allocate the memory that training needs besides the two passes and the gradients.

    AdamW keeps two moments per trainable weight; `rounds` adds the tensors of `OF_ROUNDS`.
    """
    copies = 2 + OF_ROUNDS * rounds
    return [torch.empty_like(weight) for weight in learned for _ in range(copies)]


def probe(
    model: TrainableModel,
    rows: Rows,
    most: int,
    autocast: Callable[[], AbstractContextManager[object]],
    scale: Callable[[torch.Tensor], torch.Tensor],
) -> Measured:
    """Time `model` on micro-batches of 1, 2, 4 … up to `most` of the longest rows.

    Raises `HearthError` if not even one row fits into the memory.
    """
    longest = np.argsort(-rows.tokens, kind="stable")

    def once(size: int) -> float:
        numbers = np.resize(longest, size)  # starts over if the data has fewer rows
        started = time.perf_counter()
        with autocast():
            loss = model.loss(rows.batch(numbers), max(1, int(rows.label_tokens[numbers].sum())))
        scale(loss).backward()
        model.network.zero_grad(set_to_none=False)
        if model.device.type == "cuda":
            torch.cuda.synchronize(model.device)
        return time.perf_counter() - started

    speed, saturated = search(once, most, model.release)
    if speed is None:
        raise row_too_large(int(rows.tokens[longest[0]]))
    return Measured(
        speed,
        int(rows.tokens[longest[0]]),
        sum(learned.numel() * learned.element_size() for _, learned in model.trainable()),
        saturated,
    )


def search(
    once: Callable[[int], float], most: int, release: Callable[[], None]
) -> tuple[Speed | None, bool]:
    """Time `once` with 1, 2, 4 … up to `most` rows, until larger micro-batches gain nothing.

    Return the speed, None if not even one row fits into the memory, and whether the search ended
    before `most`; `release` is called where the memory did not suffice.
    """
    sizes: list[int] = []
    seconds: list[float] = []
    saturated = False
    size = 1
    while size <= most and not saturated:
        taken = timed(functools.partial(once, size), warm=len(sizes) > 1)
        if taken is None:
            release()
            saturated = True
        else:
            sizes.append(size)
            seconds.append(taken)
            best_before = max((s / t for s, t in zip(sizes, seconds[:-1], strict=False)), default=0)
            saturated = size / taken < best_before * _GAIN
            size *= 2
    return Speed(tuple(sizes), tuple(seconds)) if sizes else None, saturated


def timed(once: Callable[[], float], warm: bool) -> float | None:
    """Return the median seconds of a few calls, or None if they do not fit into the memory.

    A call before them is not counted unless `warm`. The first call of all includes one-time
    initialisation, and torch.compile works at the first with one row and the first with several.
    """
    times: list[float] = []
    try:
        if not warm:
            once()
        while len(times) < _REPEATS and sum(times) < _LONG_ENOUGH:
            times.append(once())
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return statistics.median(times)
