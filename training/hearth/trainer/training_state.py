"""The state of training that lasts: trained weights, optimizer, schedule, loss scale, momentum.

It is written to checkpoints, and handed over from the rank that is furthest to the others of a new
group: as tensors and JSON, never as pickles. A hand-over takes effect only when all of it has
arrived: if the group breaks meanwhile, every rank still has the state that it had.

In a pipeline each rank has the state of its layers. It is small beside the weights, which are
frozen: so each node's checkpoint has the state of all layers, in the form that one rank with the
whole model writes. No node's disk is then the only one that holds some layers, and a run goes on at
any placement, or with the whole model on each rank.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hearth.model.backend import TrainableModel
from hearth.plan.placement import Placement
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
    """Return `state` as JSON, with numbers for the tensors, which are added to `tensors`.

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


_STATE = "state.pt"


class TrainingState:
    """The trained weights of `model`, and the parts `changing` beside them, by name."""

    def __init__(self, model: TrainableModel, changing: Mapping[str, Any]) -> None:
        self.model, self._changing = model, changing

    def get(self) -> dict[str, Any]:
        """Return the state as nested mappings and lists of numbers and tensors, not copied."""
        weights = {name: parameter.detach() for name, parameter in self.model.trainable()}
        parts = {name: part.state_dict() for name, part in self._changing.items()}
        return {"weights": weights, "parts": parts}

    @torch.no_grad()
    def set(self, state: Mapping[str, Any]) -> None:
        """Take over the state that another rank has got from `get`."""
        for name, parameter in self.model.trainable():
            parameter.copy_(state["weights"][name])
        for name, part in self._changing.items():
            part.load_state_dict(state["parts"][name])

    def writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the state, as it is now, to a folder.

        The function gets the folder and the name of the base model. All ranks call this method, and
        the first one of each node the function.
        """
        return self._save

    def weights_writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the trained weights alone; see `writer`."""
        return self.model.save

    def _save(self, folder: Path, base: str) -> None:
        """Write the state to `folder`; `base` names the base model."""
        self.model.save(folder / self.model.learned, base)
        states = {name: part.state_dict() for name, part in self._changing.items()}
        save_parts(folder, states)

    def load(self, folder: Path) -> None:
        """Restore the state that was saved to `folder`.

        Raises `CheckpointError` if it belongs to another model.
        """
        self.model.restore(folder / self.model.learned)
        self._load_parts(load_parts(folder))

    def _load_parts(self, saved: Mapping[str, Any]) -> None:
        """Restore the parts beside the trained weights from their `saved` states, by name."""
        for name, part in self._changing.items():
            if name in saved:  # a checkpoint of a single rank has no outer momentum
                part.load_state_dict(saved[name])
        optimizer, schedule = self._changing["optimizer"], self._changing["schedule"]
        # If the run has been given more steps, the rate follows the new schedule from here on.
        for group, base, curve in zip(
            optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = base * curve(schedule.last_epoch)


def save_parts(folder: Path, states: Mapping[str, Any]) -> None:
    """Write the `states` of the parts beside the trained weights, by name, to `folder`."""
    # torch hides an error of the disk: wholly if it opens the file itself, and else behind a failed
    # assertion.
    with (folder / _STATE).open("wb") as file:
        try:
            torch.save(dict(states), file)
        except RuntimeError as error:
            hidden = error.__context__
            while hidden and not isinstance(hidden, OSError):
                hidden = hidden.__context__
            raise (hidden or error) from None


def load_parts(folder: Path) -> dict[str, Any]:
    """Return the states that `save_parts` wrote to `folder`."""
    return torch.load(folder / _STATE, map_location="cpu", weights_only=True)


if TYPE_CHECKING:
    from hearth.model.stage import StageModel


class StageState(TrainingState):
    """The state of the layers of `model`, a stage of `placement`, and its parts `changing`."""

    model: StageModel

    def __init__(
        self, model: StageModel, changing: Mapping[str, Any], placement: Placement, world: World
    ) -> None:
        super().__init__(model, changing)
        self._placement, self._world = placement, world

    def writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the state of all layers (see `TrainingState.writer`)."""
        weights = self._of_all(self.model.adapter_tensors())
        moments = self._of_all(self._moments())
        states = {name: part.state_dict() for name, part in self._changing.items()}

        def save(folder: Path, base: str) -> None:
            self._save_weights(folder / self.model.learned, base, weights)
            everything = list(itertools.chain(*moments))
            states["optimizer"] = _optimizer_state(states["optimizer"], everything)
            save_parts(folder, states)

        return save

    def weights_writer(self) -> Callable[[Path, str], None]:
        """Return a function that writes the trained weights of all layers."""
        weights = self._of_all(self.model.adapter_tensors())
        return lambda folder, base: self._save_weights(folder, base, weights)

    def load(self, folder: Path) -> None:
        """Restore the state of this rank's layers from the one of all layers in `folder`."""
        self.model.restore(folder / self.model.learned)
        saved = load_parts(folder)
        everything = saved["optimizer"]["state"]
        counts = dict(zip(self._world.members, self._world.gather(len(self._trained)), strict=True))
        ranks = self._placement.ranks
        first = sum(counts[rank] for rank in ranks[: ranks.index(self._world.rank)])
        own = [everything.get(first + number, {}) for number in range(len(self._trained))]
        saved["optimizer"] = _optimizer_state(saved["optimizer"], own)
        self._load_parts(saved)

    @property
    def _trained(self) -> list[str]:
        """The names of this rank's trained parameters, in the order of the optimizer's."""
        return [name for name, _ in self.model.trainable()]

    def _moments(self) -> list[Any]:
        """Return the optimizer's state of each of this rank's parameters."""
        state = self._changing["optimizer"].state_dict()["state"]
        return [state.get(number, {}) for number in range(len(self._trained))]

    def _of_all(self, own: Any) -> list[Any]:
        """Return every stage's `own`, in their order; [] on a rank that writes nothing."""
        writes = self._world.keeps
        found = [hand_over(self._world, rank, own, writes) for rank in self._placement.ranks]
        return found if writes else []

    def _save_weights(self, folder: Path, base: str, weights: list[dict[str, Any]]) -> None:
        """Write the trained `weights` of all stages to `folder` as one adapter."""
        whole = {name: tensor for each in weights for name, tensor in each.items()}
        self.model.save_whole(folder, base, whole)


def _optimizer_state(state: Mapping[str, Any], moments: list[Any]) -> dict[str, Any]:
    """Return an optimizer's `state` with the `moments` of these parameters instead of its own."""
    (group,) = state["param_groups"]
    return {
        "state": {number: each for number, each in enumerate(moments) if each},
        "param_groups": [dict(group, params=list(range(len(moments))))],
    }
