"""Whether a model keeps the documents of a packed row apart, asked of the model itself.

What tells it where a document ends is handed over with every batch, but not every family of models
looks at that (OPT and Falcon do not). One that does not learns from its neighbours in the
row, in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np
import torch

from hearth.base.errors import ModelError
from hearth.data import IGNORED, Batch
from hearth.model.backend import TrainableModel

_LENGTHS = (6, 6)
_NOISE = 1e-5  # of the loss; in tiny models that leak it moves by 3e-4 (Falcon) and 3e-3 (OPT)


@torch.no_grad()
def check_borders(
    model: TrainableModel,
    name: str,
    autocast: Callable[[], AbstractContextManager[object]],
    anywhere: Callable[[bool], bool] = bool,
) -> None:
    """Check that what a document loses does not depend on the one before it in its row.

    Nothing is drawn and nothing of `model` changes. Where several ranks ask, all must, since with
    fsdp none can compute alone; `anywhere` then tells whether something is so on any of them.

    Raises `ModelError`, on every rank alike, with the `name` of the model.
    """
    vocabulary = model.network.config.get_text_config().vocab_size
    learning = model.network.training
    model.network.eval()

    def loss(first: int) -> float:
        with autocast():
            return model.loss(_two_documents(first, vocabulary), 1).item()

    try:
        one, other = loss(0), loss(1)
        # Alike on nearly every machine; only where it is not, noise is worth another pass.
        if anywhere(one != other):
            noise = abs(one - loss(0))
            leaks = abs(one - other) > 10 * noise + _NOISE * abs(one)
            if anywhere(leaks):
                raise ModelError(
                    f"{name}: this model does not keep packed documents apart "
                    f"({model.network.config.model_type}): what it learns from one would depend on "
                    f"its neighbours in the row; start a run with {model.keeps_apart}"
                )
    finally:
        model.network.train(learning)


def _two_documents(first: int, vocabulary: int) -> Batch:
    """Return a row of two documents, of which only the second is learned.

    Another `first` gives other tokens to the first document, and the same ones to the second.
    """
    length = sum(_LENGTHS)
    # From all over the vocabulary: its beginning is often special tokens.
    ids = np.arange(1, length + 1) * vocabulary // (length + 2)
    ids[: _LENGTHS[0]] += first
    labels = ids.copy()
    labels[: _LENGTHS[0] + 1] = IGNORED
    positions = np.concatenate([np.arange(each) for each in _LENGTHS])
    return Batch(ids[None], labels[None], positions[None], list(_LENGTHS))
