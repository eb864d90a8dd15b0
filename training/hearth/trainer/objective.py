"""Objectives: the loss of a micro-batch, and the counts that make it a mean over a step."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from hearth.data.rows import Batch, Rows
from hearth.model.backend import TrainableModel


class Objective(Protocol):
    """A loss that is a sum over rows, divided by a count over the whole step.

    Every rank counts all rows of a step before any is computed. So the gradients of all ranks add
    up to that of one big GPU, however the rows are divided (see `stepper`).
    """

    def count(self, rows: Rows, numbers: np.ndarray) -> int:
        """Return the divisor for the rows numbered `numbers`: counts of rows add up."""
        ...

    def loss(self, model: TrainableModel, batch: Batch, count: int) -> torch.Tensor:
        """Return the loss of `batch`, a scalar: the sum over its rows divided by `count`."""
        ...


class NextToken(Objective):
    """The mean loss of each token that carries loss: fine-tuning on answers, and pretraining."""

    def count(self, rows: Rows, numbers: np.ndarray) -> int:
        """Return the number of tokens that carry loss."""
        return int(rows.label_tokens[numbers].sum())

    def loss(self, model: TrainableModel, batch: Batch, count: int) -> torch.Tensor:
        """Return the summed loss of the tokens of `batch` over `count`."""
        return model.loss(batch, count)
