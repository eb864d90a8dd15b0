"""The tensors of a model that one stage of `parallel: pipeline` needs. Pure.

A stage is a range of consecutive decoder layers. The first one also holds the embeddings, the last
one the final norm and the head, which often shares its weights with the embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_TOKENS = re.compile(r"(?:^|\.)(?:embed_tokens|wte)\.")
_POSITIONS = re.compile(r"(?:^|\.)wpe\.")


@dataclass(frozen=True)
class Part:
    """The part of a model that one stage holds.

    Attributes:
        layers: its decoder layers.
        count: decoder layers of the whole model.
        tied: whether the head shares its weights with the embeddings.
    """

    layers: range
    count: int
    tied: bool

    @property
    def first(self) -> bool:
        """Whether it begins with the embeddings."""
        return self.layers.start == 0

    @property
    def last(self) -> bool:
        """Whether it ends with the head."""
        return self.layers.stop == self.count

    def needs(self, tensor: str) -> bool:
        """Return whether the stage needs the stored tensor of this name."""
        if layer := _LAYER.search(tensor):
            return int(layer[1]) in self.layers
        if _POSITIONS.search(tensor):
            return self.first
        if _TOKENS.search(tensor):
            return self.first or (self.last and self.tied)
        return self.last

    def needed(self, tensors: Iterable[str]) -> list[str]:
        """Return the names in `tensors` that the stage needs, in their order."""
        return [name for name in tensors if self.needs(name)]
