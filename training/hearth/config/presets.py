"""Presets: facts and settings of a known model, one YAML file each in `training/presets/`.

A preset also says where its model comes from. Plain data, no torch: the controller reads this too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hearth.base.errors import ConfigError
from hearth.config.problems import describe
from hearth.config.shape import Shape, shape_in

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class WheelSource:
    """A Python package that contains a model as GGUF, used if the Hub does not answer."""

    package: str
    version: str
    sha256: Sha256
    member: str
    member_sha256: Sha256


@dataclass(frozen=True)
class ModelSource:
    """A model's name in the cache, and its Hub id or local folder.

    Without `weights`, only its configuration and tokenizer are fetched from the Hub. `in_4bit`: its
    weights are stored in 4 bits, by bitsandbytes, as a preset knows of a repository.
    """

    name: str
    id: str
    kind: Literal["hub", "folder"]
    revision: str | None = None
    gated: bool = False
    wheel: WheelSource | None = None
    weights: bool = True
    in_4bit: bool = False

    @property
    def folder(self) -> str:
        """The name of its folder in the cache."""
        name = re.sub(r"[^\w.-]+", "--", self.name).strip(".-") or "model"
        return name if self.weights else f"{name}.scratch"


PRESETS = Path(__file__).resolve().parents[2] / "presets"


SMALL = "smollm2-135m"
"""The preset that any computer trains in minutes, without an account on the Hub."""


class Reuploads(BaseModel):
    """Other repositories of the Hub that hold a preset's model.

    Attributes:
        same: repositories with the same weights.
        in_4bit: repositories with the weights as bitsandbytes stores them in 4 bits.
    """

    model_config = ConfigDict(extra="forbid")
    same: tuple[str, ...] = ()
    in_4bit: tuple[str, ...] = ()


class Preset(BaseModel):
    """One model: its source, licence, sizes and recommended settings.

    Uncertain facts are left out. `with_shards` are further settings for token shards, of steps for
    billions of tokens.
    """

    model_config = ConfigDict(extra="forbid")
    id: str
    revision: str | None = None
    licence: str
    gated: bool | None = None
    also: Reuploads = Reuploads()
    shape: Shape | None = None
    wheel: WheelSource | None = None
    settings: dict[str, Any] = {}
    with_shards: dict[str, Any] = {}

    def source(self, name: str) -> ModelSource:
        """Return the source of the model of this preset, whose name is `name`."""
        return ModelSource(name, self.id, "hub", self.revision, bool(self.gated), self.wheel)

    def source_in(self, repository: str, name: str) -> ModelSource:
        """Return the source of this preset's model in `repository`, one of `repositories`."""
        if repository == self.id:
            return self.source(name)
        cached_as = repository.replace("/", "--")
        if repository in self.also.in_4bit:
            return ModelSource(cached_as, repository, "hub", in_4bit=True)
        return ModelSource(cached_as, repository, "hub", wheel=self.wheel)

    @property
    def repositories(self) -> tuple[str, ...]:
        """The repositories of the Hub whose name means this preset.

        A preset that starts from random weights has none: the name means the published weights.
        """
        if self.settings.get("scratch"):
            return ()
        return (self.id, *self.also.same, *self.also.in_4bit)


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


def preset_behind(repository: str) -> tuple[str, str] | None:
    """Return the preset that a repository of the Hub holds, and the repository as it is spelt.

    The Hub ignores case, and so does this. None if the repository holds no preset's model.
    """
    return _by_repository().get(repository.lower())


@cache
def _by_repository() -> dict[str, tuple[str, str]]:
    """Return all presets' names and repositories, by repository in lower case."""
    return {
        repository.lower(): (name, repository)
        for name in preset_names()
        for repository in load_preset(name).repositories
    }


def known_shape(model: str, source: ModelSource, models: Path) -> Shape | None:
    """Return the shape of the model that the setting `model` names and that comes from `source`.

    A preset states the shape; for a folder or a model in the cache `models` it is read from
    config.json. None if the shape is unknown before the download, or the model's kind is unknown.
    """
    if model in preset_names():
        return load_preset(model).shape
    return shape_in(Path(source.id) if source.kind == "folder" else models / source.folder)
