"""The state of training, sent from the rank that is furthest to the others of a new group.

It travels as tensors and JSON, never as pickles. It takes effect only when all of it has arrived:
if the group breaks meanwhile, every rank still has the state that it had.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hearth.ranks.world import World

_PIECE = 64 << 20
"""Bytes of tensors that are sent at once; a larger tensor is sent by itself."""


def hand_over(world: World, source: int, state: Any, lacks: bool = True) -> Any:
    """Return the `state` of rank `source`; its tensors are on the CPU.

    The state is nested mappings and lists of numbers, texts and tensors; only the source's is read.
    All members of the group take part. One that does not need the state `lacks` nothing, gets None
    and keeps no copy.

    Raises `GroupBroken` if a rank is lost, `TypeError` for anything else in the state.
    """
    tensors: list[torch.Tensor] = []
    form = world.from_rank(source, take_apart(state, tensors) if world.rank == source else None)
    shapes: list[tuple[torch.dtype, list[int]]] = [
        (_dtype(name), shape)
        for name, shape in world.from_rank(
            source, [(str(tensor.dtype), list(tensor.shape)) for tensor in tensors]
        )
    ]
    arrived: list[torch.Tensor] = []
    for first, last, size in _pieces(shapes):
        buffer = torch.empty(size, dtype=torch.uint8)
        if world.rank == source:
            torch.cat([_bytes(tensor) for tensor in tensors[first:last]], out=buffer)
        if size:
            world.broadcast_(buffer, source)
        start = 0
        for dtype, shape in shapes[first:last] if lacks else ():
            length = _length(dtype, shape)
            # Copied, since a view of another type must be aligned.
            own = buffer[start : start + length].clone()
            arrived.append(own.view(dtype).view(shape))
            start += length
    return put_together(form, arrived) if lacks else None


def take_apart(state: Any, tensors: list[torch.Tensor]) -> Any:
    """Return `state` as JSON, in which numbers stand for the tensors that are added to `tensors`.

    Raises `TypeError` for a value that is none of those that a state may have.
    """
    match state:
        case None | bool() | int() | float() | str():
            return {"value": state}
        case torch.Tensor():
            tensors.append(state.detach())
            return {"tensor": len(tensors) - 1}
        case dict():
            return {"dict": [(key, take_apart(each, tensors)) for key, each in state.items()]}
        case list():
            return {"list": [take_apart(each, tensors) for each in state]}
        case tuple():
            return {"tuple": [take_apart(each, tensors) for each in state]}
    raise TypeError(f"a state of training cannot hold a {type(state).__name__}: {state!r:.80}")


def put_together(form: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the state that `take_apart` took apart."""
    ((kind, content),) = form.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {key: put_together(each, tensors) for key, each in content}
        case "list":
            return [put_together(each, tensors) for each in content]
        case "tuple":
            return tuple(put_together(each, tensors) for each in content)
    return content


def _pieces(shapes: list[tuple[torch.dtype, list[int]]]) -> Iterator[tuple[int, int, int]]:
    """Yield first and last (excluded) tensor of each piece that is sent at once, and its bytes."""
    first = size = 0
    for number, (dtype, shape) in enumerate(shapes):
        length = _length(dtype, shape)
        if size and size + length > _PIECE:
            yield first, number, size
            first, size = number, 0
        size += length
    if first < len(shapes):
        yield first, len(shapes), size


def _length(dtype: torch.dtype, shape: list[int]) -> int:
    """Return the bytes of a tensor."""
    return dtype.itemsize * torch.Size(shape).numel()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor (bytes,) on the CPU."""
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def _dtype(name: str) -> torch.dtype:
    """Return the type of this name, such as `torch.float32`."""
    found = getattr(torch, name.removeprefix("torch."))
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name} is no type of tensors")
    return found
