"""The tensors of a model: the safetensors file of each, and those that a stage needs. No torch.

A stage of `parallel: pipeline` is a range of consecutive decoder layers. The first one also holds
the embeddings, the last one the final norm and the head, which often shares its weights with the
embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hearth.base.errors import ModelError
from hearth.base.files import read_object
from hearth.config.declared import INDEX, problems

_LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
_EMBEDDINGS = re.compile(r"(?:^|\.)(?:embed_tokens|wte|wpe)\.")


@dataclass(frozen=True)
class ModelPart:
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

    @property
    def pieces(self) -> set[int]:
        """The pieces of the model (see `piece_of`) that it needs."""
        embeds = self.first or (self.last and self.tied)
        return {*self.layers, *([-1] if embeds else []), *([self.count] if self.last else [])}

    def needed(self, tensors: Iterable[str]) -> list[str]:
        """Return the names in `tensors` that the stage needs, in their order."""
        return [name for name in tensors if piece_of(name, self.count) in self.pieces]


def piece_of(tensor: str, count: int) -> int | None:
    """Return the number of the layer that a stored tensor belongs to, in a model of `count` layers.

    Embeddings are -1, all that follows the layers is `count`. None is a further layer, which no
    stage needs: it predicts tokens behind the next one, and Transformers does not build it.
    """
    if layer := _LAYER.search(tensor):
        number = int(layer[1])
        return number if number < count else None
    return -1 if _EMBEDDINGS.search(tensor) else count


def files_for(parts: Iterable[ModelPart], files: Mapping[str, str]) -> set[str]:
    """Return the files that `parts` need; `files` has the file of each tensor."""
    return {files[tensor] for part in parts for tensor in part.needed(files)}


def pieces_without(
    absent: Collection[str], files: Mapping[str, str], count: int, tied: bool
) -> list[int]:
    """Return the pieces of a model of `count` layers that need none of the `absent` files.

    With `tied` the head has no weights of its own but those of the embeddings.
    """
    lacking = {piece_of(tensor, count) for tensor, file in files.items() if file in absent}
    if tied and -1 in lacking:
        lacking.add(count)
    return [piece for piece in range(-1, count + 1) if piece not in lacking]


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
