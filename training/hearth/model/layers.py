"""The layers of a model, as Transformers declares them."""

from __future__ import annotations

import torch

from hearth.base.errors import ModelError


def layers_of(base: torch.nn.Module, lacking: str) -> list[torch.nn.Module]:
    """Return the layers of the model `base`, from first to last.

    Raises `ModelError`, which says what is `lacking` without them, if it does not declare them.
    """
    names = getattr(base, "_no_split_modules", None) or ()
    layers = [each for each in base.modules() if type(each).__name__ in names]
    if not layers:
        raise ModelError(
            f"{type(base).__name__}: this model does not say what its layers are, so {lacking}"
        )
    return layers
