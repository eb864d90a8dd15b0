"""Presets: facts and settings of a known model, one YAML file each in `training/presets/`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from hearth.base.errors import ConfigError
from hearth.config.problems import describe
from hearth.config.shape import Shape, shape_in
from hearth.config.source import ModelSource, WheelSource

PRESETS = Path(__file__).resolve().parents[2] / "presets"


class Preset(BaseModel):
    """One model: its source, licence, sizes and recommended settings.

    Uncertain facts are left out.
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    revision: str | None = None
    licence: str
    gated: bool | None = None
    shape: Shape | None = None
    wheel: WheelSource | None = None
    settings: dict[str, Any] = {}

    def source(self, name: str) -> ModelSource:
        """Return the source of the model of this preset, whose name is `name`."""
        return ModelSource(name, self.id, "hub", self.revision, bool(self.gated), self.wheel)


def preset_names() -> list[str]:
    """Return the names of all shipped presets, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.yml"))


def load_preset(name: str) -> Preset:
    """Return the preset `name`.

    Raises `ConfigError` if the file is not a valid preset.
    """
    path = PRESETS / f"{name}.yml"
    try:
        return Preset.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise ConfigError(*describe(error, str(path), Preset.model_fields)) from error


def known_shape(model: str, source: ModelSource, models: Path) -> Shape | None:
    """Return the shape of the model that the setting `model` names and that comes from `source`.

    A preset states the shape; for a folder or a model in the cache `models` it is read from
    config.json. None if the shape is unknown before the download, or the model's kind is unknown.
    """
    if model in preset_names():
        return load_preset(model).shape
    return shape_in(Path(source.id) if source.kind == "folder" else models / source.folder)
