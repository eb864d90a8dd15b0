"""Replicas with equal weights: at the start, and after they have drifted apart.

At the start weights are compared by checksum, and broadcast only if they differ. Later all ranks
add the same gradients, but unlike processors round an optimizer's step unlike; quantised moments
carry that on. Then each tensor of the state is summed in eight interleaved parts. As rounding has
no direction, the distance of two ranks' sums is about that of their tensors.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hearth.ranks.world import World
from hearth.trainer.training_state import take_apart

ROUNDING = 1e-6
"""Distance of two tensors, relative to their size, that fp32 alone may give them."""

_SUMS = 8


@dataclass(frozen=True)
class Drift:
    """The tensors, out of `all`, that differed from the leader's.

    Attributes:
        numbers: of these tensors.
        ranks: that differed, with the largest of their distances, relative to a tensor's size.
    """

    numbers: tuple[int, ...]
    all: int
    ranks: dict[int, float]


@torch.no_grad()
def mend(state: Any, world: World) -> Drift:
    """Compare the `state` of training of all ranks, and take over the leader's where it differs.

    The state is as in `hand_over`; its tensors are changed in place. All members of the group take
    part.

    Raises `GroupBroken` if a rank is lost; nothing is changed then.
    """
    tensors: list[torch.Tensor] = []
    take_apart(state, tensors)
    everyone = dict(
        zip(world.members, world.gather([_sums(each) for each in tensors]), strict=True)
    )
    drift = compare(everyone, world.leader)
    arrived = []
    for number in drift.numbers:
        value = tensors[number].cpu().clone(memory_format=torch.contiguous_format)
        world.broadcast_(value)
        arrived.append(value)
    # From here on by itself.
    for number, value in zip(drift.numbers, arrived, strict=True):
        if not world.leads:
            tensors[number].copy_(value)
    return drift


def compare(everyone: dict[int, Sequence[Sequence[float]]], leader: int) -> Drift:
    """Return the tensors and ranks whose sums differ from the leader's."""
    numbers: set[int] = set()
    ranks: dict[int, float] = {}
    for rank, sums in everyone.items():
        for number, (own, wanted) in enumerate(zip(sums, everyone[leader], strict=True)):
            if (distance := _distance(own, wanted)) > ROUNDING:
                numbers.add(number)
                ranks[rank] = max(distance, ranks.get(rank, 0.0))
    return Drift(tuple(sorted(numbers)), len(everyone[leader]), ranks)


def _sums(tensor: torch.Tensor) -> list[float]:
    """Return the sums of a tensor's interleaved parts, and its size: the root of all squares."""
    flat = tensor.detach().contiguous().view(-1)
    whole = flat[: flat.numel() // _SUMS * _SUMS].view(-1, _SUMS)
    sums = whole.sum(dim=0, dtype=torch.float64)
    rest = flat[whole.numel() :]
    sums[: rest.numel()] += rest.double()
    real = flat if flat.is_floating_point() else flat.float()
    return [*sums.tolist(), torch.linalg.vector_norm(real, dtype=torch.float64).item()]


def _distance(own: Sequence[float], wanted: Sequence[float]) -> float:
    """Return the distance of two tensors by their sums, relative to the larger one's size."""
    if not all(map(math.isfinite, (*own, *wanted))):
        return 0.0 if list(map(str, own)) == list(map(str, wanted)) else math.inf
    size = max(own[-1], wanted[-1])
    return math.dist(own, wanted) / size if size else 0.0


@torch.no_grad()
def sync_weights(parameters: Sequence[torch.nn.Parameter], world: World) -> int:
    """Give every rank rank 0's `parameters`; return the number of those that had to be sent.

    Weights from equal files or one seed are equal already, unless some ranks drew them on a GPU and
    others on a CPU. Checksums of a whole model are kilobytes, its weights gigabytes.
    """
    everyone = world.gather([_checksum(parameter) for parameter in parameters])
    differing = [
        parameter
        for parameter, sums in zip(parameters, zip(*everyone, strict=True), strict=True)
        if len(set(sums)) > 1
    ]
    for parameter in differing:
        # A copy, so that a rank that is lost meanwhile leaves the others whole.
        value = parameter.detach().cpu().clone(memory_format=torch.contiguous_format)
        world.broadcast_(value)
        parameter.copy_(value)
    return len(differing)


def _checksum(parameter: torch.nn.Parameter) -> str:
    """Return a checksum of the parameter's bytes."""
    flat = parameter.detach().cpu().contiguous().flatten()
    return hashlib.sha256(flat.view(torch.uint8).numpy()).hexdigest()
