"""Objectives: the loss of a micro-batch, and the counts that make it a mean over a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import torch

from hearth.data.rows import Batch, Rows
from hearth.model.backend import TrainableModel


@dataclass(frozen=True)
class StepCounts:
    """Counts of the rows of a whole step, by which their sums are divided.

    Attributes:
        weight: label tokens, or with preferences the pairs or judged answers.
        chosen: chosen answers, or those that are judged good.
        rejected: the other ones.
        learned: learned tokens of the chosen answers.
        whole: predicted tokens of their conversations, prompts included.
        kl: with KTO, the mean log-ratio of mismatched answers, at least 0.
    """

    weight: int
    chosen: int = 0
    rejected: int = 0
    learned: int = 0
    whole: int = 0
    kl: float = 0.0


@dataclass(frozen=True)
class MicroRows:
    """The rows of a micro-batch: the `numbers` of some of `rows`."""

    rows: Rows
    numbers: np.ndarray

    @cached_property
    def batch(self) -> Batch:
        """The rows as arrays."""
        return self.rows.batch(self.numbers)


@dataclass(frozen=True)
class Loss:
    """The loss of a micro-batch, a scalar with a gradient, and the objective's `sums` over it."""

    value: torch.Tensor
    sums: Sequence[float] = ()


class Objective(Protocol):
    """A loss that is a sum over rows, divided by counts over the whole step.

    Every rank counts all rows of a step before any is computed. So the gradients of all ranks add
    up to that of one big GPU, however the rows are divided (see `stepper`).

    Attributes:
        unit: what `StepCounts.weight` counts.
        sums: names of the further sums over rows, which `means` divides.
    """

    unit: str = "label tokens"
    sums: tuple[str, ...] = ()

    def counts(self, rows: Rows, numbers: np.ndarray) -> StepCounts:
        """Return the counts of the rows numbered `numbers`; those of rows add up."""
        ...

    def complete(
        self,
        counts: StepCounts,
        rows: Rows,
        own: np.ndarray,
        mismatched: Callable[[], np.ndarray],
        of_all: Callable[[list[float]], list[float]],
    ) -> StepCounts:
        """Return the `counts` with what takes a pass before that of the gradients; all ranks call.

        `mismatched` computes the log-probabilities of the mismatched answers in the rows of this
        rank, numbered `own`; `of_all` collects numbers of all ranks.
        """
        return counts

    def loss(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> Loss:
        """Return the loss of `part`: the sum over its rows, divided by the step's `counts`."""
        ...

    def evaluate(
        self, model: TrainableModel, part: MicroRows, counts: StepCounts
    ) -> Sequence[float]:
        """Return sums over some held-out rows; `counts` are those of all held-out rows."""
        ...

    def watched(self, sums: Sequence[float], counts: StepCounts) -> dict[str, float]:
        """Return the means of `sums` over all ranks, by their name in a step's record."""
        return {}

    def means(self, sums: Sequence[float], counts: StepCounts) -> dict[str, float]:
        """Return the means, by name, of the sums of all ranks that `evaluate` has returned.

        `loss` is the mean loss, and `nll` that of a token in nats, whose exponential is the
        perplexity.
        """
        ...


@dataclass(frozen=True)
class NextToken(Objective):
    """The mean loss of each token that carries loss: fine-tuning on answers, and pretraining."""

    unit: str = field(default="label tokens", init=False)

    def counts(self, rows: Rows, numbers: np.ndarray) -> StepCounts:
        """Return the number of tokens that carry loss."""
        return StepCounts(int(rows.label_tokens[numbers].sum()))

    def loss(self, model: TrainableModel, part: MicroRows, counts: StepCounts) -> Loss:
        """Return the summed loss of the tokens of `part` over the step's label tokens."""
        return Loss(model.loss(part.batch, counts.weight))

    def evaluate(
        self, model: TrainableModel, part: MicroRows, counts: StepCounts
    ) -> Sequence[float]:
        """Return the summed loss of the tokens of `part`."""
        return [model.loss(part.batch, 1).item()]

    def means(self, sums: Sequence[float], counts: StepCounts) -> dict[str, float]:
        """Return the mean loss of a token."""
        mean = sums[0] / counts.weight
        return {"loss": mean, "nll": mean}
