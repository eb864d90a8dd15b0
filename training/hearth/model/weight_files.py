"""The safetensors files of a model, and the tensors in them. Reads headers only; no torch."""

from __future__ import annotations

from pathlib import Path

from hearth.base.errors import ModelError
from hearth.base.files import read_object
from hearth.config.declared import INDEX, problems

SINGLE = "model.safetensors"


def weight_map(folder: Path) -> dict[str, str]:
    """Return the name of the file in `folder` that holds each tensor of the model.

    A large model's index says so, and the files themselves need not be there.

    Raises `ModelError` if there is neither an index nor a file of weights.
    """
    if (folder / SINGLE).is_file():
        return dict.fromkeys(tensors_in(folder / SINGLE), SINGLE)
    content = read_object(folder / INDEX) or {}
    listed = content.get("weight_map")
    if not listed or problems({INDEX: content}):
        raise ModelError(
            f"{folder}: neither {SINGLE} nor {INDEX} says where the model's weights are; copy the "
            "model again"
        )
    return listed


def tensors_in(file: Path) -> list[str]:
    """Return the names of the tensors in the safetensors file `file`."""
    from safetensors import safe_open

    with safe_open(file, "numpy") as opened:
        return list(opened.keys())
