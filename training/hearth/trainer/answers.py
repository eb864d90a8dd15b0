"""The log-probabilities of the answers in a micro-batch, for objectives of preferences."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel


class Answers(NamedTuple):
    """The answers of a micro-batch, in the order of its documents.

    Attributes:
        log_probs: float (answers,), summed over the learned tokens of each.
        tokens: int (answers,), learned tokens.
        whole: float (answers,), log-probability of the whole conversation; () unless asked for.
    """

    log_probs: torch.Tensor
    tokens: torch.Tensor
    whole: torch.Tensor


def answers_of(model: TrainableModel, batch: Batch, whole: bool = False) -> Answers:
    """Return the log-probabilities of the documents of `batch` that have learned tokens."""
    lengths = np.array(batch.packed_seq_lengths)
    learned = (batch.labels != IGNORED).ravel()
    starts = np.cumsum(lengths) - lengths
    tokens = np.add.reduceat(learned, starts, dtype=np.int64)
    (answered,) = np.nonzero(tokens)  # the others are padding
    if whole:
        conversation = np.repeat(tokens > 0, lengths)
        conversation[starts] = False
        labels = np.where(conversation.reshape(batch.labels.shape), batch.input_ids, IGNORED)
        batch = Batch(batch.input_ids, labels, batch.position_ids, batch.packed_seq_lengths)
    values = model.token_log_probs(batch).flatten()

    def by_answer(each: torch.Tensor) -> torch.Tensor:
        # Not index_add, whose order on a GPU differs from run to run.
        sums = torch.segment_reduce(
            each, "sum", lengths=torch.as_tensor(lengths, device=each.device)
        )
        return sums[torch.as_tensor(answered, device=each.device)]

    mask = torch.as_tensor(learned, device=values.device)
    return Answers(
        by_answer(values * mask if whole else values),
        torch.as_tensor(tokens[answered], device=values.device),
        by_answer(values) if whole else values.new_empty(0),
    )
