"""The shape of a model before it is downloaded, from a preset, a folder or the cache."""

from __future__ import annotations

from pathlib import Path

from hearth.config import load_preset, preset_names
from hearth.config.shape import Shape, shape_in
from hearth.config.source import ModelSource


def known_shape(model: str, source: ModelSource, models: Path) -> Shape | None:
    """Return the shape of the model that the setting `model` names and that comes from `source`.

    A preset states the shape; for a folder or a model in the cache `models` it is read from
    config.json. None if the shape is unknown before the download, or the model's kind is unknown.
    """
    if model in preset_names():
        return load_preset(model).shape
    return shape_in(Path(source.id) if source.kind == "folder" else models / source.folder)


def unknown(model: str) -> str:
    """Return the notice for a model of unknown shape, whose fit cannot be checked beforehand."""
    return f"{model}: its memory need is unknown, so whether it fits cannot be checked beforehand"
