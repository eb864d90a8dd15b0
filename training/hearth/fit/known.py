"""The shape of a model before it is downloaded, as far as it is known."""

from __future__ import annotations

from pathlib import Path

from hearth.config import load_preset, preset_names
from hearth.config.shape import Shape, shape_in
from hearth.config.source import ModelSource


def known_shape(model: str, source: ModelSource, models: Path) -> Shape | None:
    """Return the shape of the model that the setting `model` names and that comes from `source`.

    A preset says it; a folder and what lies in the cache `models` have a config.json that does.
    None where nothing is known before the download, or where the model is of an unknown kind.
    """
    if model in preset_names():
        return load_preset(model).shape
    return shape_in(Path(source.id) if source.kind == "folder" else models / source.folder)


def unknown(model: str) -> str:
    """Return what a person should know where nothing is known of a model's shape."""
    return f"how much memory {model} needs is not known here; whether it fits will show"
