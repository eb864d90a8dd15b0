"""Check that a model isolates the documents of a packed row, by running the model.

Every batch marks the boundaries of documents, but not every model family uses them (OPT and Falcon
do not). In such a model a document attends to its neighbours in the row, without any error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch

from hearth.base.errors import ModelError
from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel

_LENGTHS = (6, 6)
_NOISE = 1e-5  # of the loss; in tiny models that leak it moves by 3e-4 (Falcon) and 3e-3 (OPT)


@torch.no_grad()
def check_isolation(
    model: TrainableModel,
    name: str,
    autocast: Callable[[], AbstractContextManager[object]],
    anywhere: Callable[[bool], bool] = bool,
) -> None:
    """Check that a document's loss does not depend on the one before it in its row.

    No random numbers are drawn and `model` does not change. With several ranks all must call this,
    since with fsdp none can compute alone; `anywhere` then combines a flag by OR over all ranks.

    Raises `ModelError`, on all ranks, with the `name` of the model.
    """
    vocabulary = model.network.config.get_text_config().vocab_size
    learning = model.network.training
    model.network.eval()

    def loss(first: int) -> float:
        with autocast():
            return model.loss(_two_documents(first, vocabulary), 1).item()

    try:
        one, other = loss(0), loss(1)
        # Equal on nearly every machine; measure the noise, in another pass, only if they differ.
        if anywhere(one != other):
            noise = abs(one - loss(0))
            leaks = abs(one - other) > 10 * noise + _NOISE * abs(one)
            if anywhere(leaks):
                raise ModelError(
                    f"{name}: this model ({model.network.config.model_type}) does not isolate "
                    "packed documents: each would depend on its neighbours in the row; start a "
                    f"run with {model.isolation_setting}"
                )
    finally:
        model.network.train(learning)


def _two_documents(first: int, vocabulary: int) -> Batch:
    """Return a row of two documents; only the second carries loss.

    `first` changes the tokens of the first document only.
    """
    length = sum(_LENGTHS)
    # Spread over the vocabulary, whose first tokens are often special ones.
    ids = np.arange(1, length + 1) * vocabulary // (length + 2)
    ids[: _LENGTHS[0]] += first
    labels = ids.copy()
    labels[: _LENGTHS[0] + 1] = IGNORED
    positions = np.concatenate([np.arange(each) for each in _LENGTHS])
    return Batch(ids[None], labels[None], positions[None], list(_LENGTHS))
