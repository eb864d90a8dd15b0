"""Check of loaded weights for NaN and infinity, which would spread to every loss."""

from __future__ import annotations

from pathlib import Path

import torch

from hearth.base.errors import ModelError
from hearth.base.text import listed


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
