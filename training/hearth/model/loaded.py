"""Checks of a model that was just loaded: its layers, finite weights, isolated documents.

Every batch marks the boundaries of documents, but not every model family uses them (OPT and Falcon
do not). In such a model a document attends to its neighbours in the row, without any error.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import torch

from hearth.base.errors import ModelError
from hearth.base.text import listed
from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel


def layers_of(base: torch.nn.Module, lacking: str) -> list[torch.nn.Module]:
    """Return the layers of the model `base`, from first to last.

    Raises `ModelError` with the consequence `lacking` if the model does not declare them.
    """
    names = getattr(base, "_no_split_modules", None) or ()
    layers = [each for each in base.modules() if type(each).__name__ in names]
    if not layers:
        raise ModelError(
            f"{type(base).__name__}: this model does not say what its layers are, so {lacking}"
        )
    return layers


def check_finite(network: torch.nn.Module, folder: Path) -> None:
    """Raise `ModelError` if weights that `network` loaded from `folder` are not finite.

    Embeddings of single tokens are left to training, which names the rows that contain them: some
    models have arbitrary bytes there, for tokens that do not exist.
    """
    heads = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.Linear)}
    embeddings = {id(m.weight) for m in network.modules() if isinstance(m, torch.nn.Embedding)}
    damaged = [
        name.removeprefix("base_model.model.").replace(".base_layer", "")
        for name, weight in network.named_parameters()
        if id(weight) not in embeddings - heads and not _is_finite(weight)
    ]
    if damaged:
        raise ModelError(
            f"{folder}: weights are NaN or infinite: {listed(damaged)}; copy the model again, or "
            "take another one"
        )


def _is_finite(weight: torch.Tensor) -> bool:
    """Return whether all values are finite; those of a quantised weight show in its scales."""
    if (state := getattr(weight, "quant_state", None)) is not None:  # 4 bits
        weight = state.offset if state.nested else state.absmax
    elif (scales := getattr(weight, "SCB", None)) is not None:  # 8 bits
        weight = scales
    if not weight.is_floating_point() or not weight.numel():
        return True
    # The extremes are NaN if any value is, and no copy of the weight is made.
    return all(bool(extreme.isfinite()) for extreme in torch.aminmax(weight.detach()))


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
