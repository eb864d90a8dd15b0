"""How good is the model: held-out perplexity, and one held-out question answered."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch

from hearth.data import Rows
from hearth.model.seam import TrainableModel
from hearth.plan.speed import pieces_of
from hearth.plan.split import Plan
from hearth.world import World


@dataclass(frozen=True)
class HeldOut:
    """The mean loss over `tokens` held-out tokens, in nats a token."""

    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss: among how many tokens the model hesitates."""
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
) -> HeldOut:
    """Return the loss over all held-out tokens, exact: sums are added, never means averaged.

    `plan` divides the rows over the ranks.
    """
    own = np.arange(len(rows))[plan.slice_of(world.rank)]
    model.network.eval()
    total = 0.0
    for numbers in pieces_of(own, plan.pieces(world.rank)):
        with autocast():
            total += model.loss(rows.batch_or_blank(numbers), 1).item()
    model.network.train()
    tokens = int(rows.label_tokens.sum())
    return HeldOut(loss=sum(world.gather(total)) / tokens, tokens=tokens)
