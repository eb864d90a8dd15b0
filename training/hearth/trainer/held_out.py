"""Held-out loss and perplexity of the model, computed by all ranks together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.plan.speed import micro_batches, pieces_of
from hearth.plan.split import Plan
from hearth.ranks.memory import is_out_of_memory, release, row_too_large, too_large_together
from hearth.ranks.world import World


@dataclass(frozen=True)
class HeldOut:
    """The mean loss over `tokens` held-out tokens, in nats a token."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss; infinity if that overflows."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf


@torch.no_grad()
def held_out_loss(
    model: TrainableModel,
    rows: Rows,
    world: World,
    plan: Plan,
    autocast: Callable[[], AbstractContextManager[object]],
    say: Callable[[str], None],
) -> HeldOut:
    """Return the mean loss over all held-out tokens, exact: sums are added, means never averaged.

    `plan` divides the rows over the ranks. A rank that runs out of memory retries with half as many
    rows at once. Raises `HearthError` if a single row does not fit, or if all ranks compute
    together and no rank can retry alone.
    """
    own = np.arange(len(rows))[plan.slice_of(world.rank)]
    sizes = plan.pieces(world.rank)
    model.network.eval()
    while (total := _sum(model, rows, pieces_of(own, sizes), autocast)) is None:
        largest = max(sizes)
        if plan.turns:
            raise too_large_together(largest)
        if largest == 1:
            raise row_too_large(int(rows.tokens[own].max()))
        release(model.device)
        sizes = micro_batches(len(own), largest // 2)
        say(f"{largest} held-out rows at once do not fit into the memory; going on with fewer")
    model.network.train()
    tokens = int(rows.label_tokens.sum())
    return HeldOut(loss=sum(world.gather(total)) / tokens, tokens=tokens)


def _sum(
    model: TrainableModel,
    rows: Rows,
    pieces: Iterable[np.ndarray],
    autocast: Callable[[], AbstractContextManager[object]],
) -> float | None:
    """Return the summed loss over all tokens of these rows, or None if out of memory."""
    total = 0.0
    try:
        for numbers in pieces:
            with autocast():
                total += model.loss(rows.batch_or_blank(numbers), 1).item()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    return total
