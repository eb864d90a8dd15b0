"""The one exchange of a step: summed gradients and all that the ranks must tell each other.

Every gradient is a view into one flat buffer, so the backward pass writes where the all-reduce
reads. Behind the gradients lie the small numbers of the step: whatever all ranks must agree on
travels in the same sum. Gradients are summed, never averaged: dividing by the number of ranks and
multiplying again is inexact where that number is not a power of two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hearth.world import World

# What every rank reports of itself; each writes only its own slot, so the sum is a gathering.
_OWN = ("tokens", "compute_seconds", "wait_seconds", "peak_memory_mib")


@dataclass(frozen=True)
class StepSum:
    """What a step came to over all ranks; the sequences hold one number a rank."""

    loss: float
    stop: bool
    tokens: list[int]
    compute_seconds: list[float]
    wait_seconds: list[float]
    peak_memory_mib: list[float]


class Exchange:
    """The flat buffer of a run's gradients, and its sum over the ranks."""

    def __init__(self, parameters: Sequence[torch.nn.Parameter], world: World) -> None:
        dtypes = {parameter.dtype for parameter in parameters}
        if len(dtypes) != 1:
            raise ValueError(f"all trainable parameters must have one type, not {dtypes}")
        self._world = world
        self._size = sum(parameter.numel() for parameter in parameters)
        numbers = 2 + len(_OWN) * world.size
        self._buffer = torch.zeros(
            self._size + numbers, dtype=dtypes.pop(), device=parameters[0].device
        )
        self._waited = 0.0
        start = 0
        for parameter in parameters:
            view = self._buffer[start : start + parameter.numel()].view_as(parameter)
            parameter.grad = view
            start += parameter.numel()

    def clear(self) -> None:
        """Set everything to zero; a rank without rows leaves it at that."""
        self._buffer.zero_()

    def run(
        self, loss: float, stop: bool, tokens: int, compute_seconds: float, peak_memory_mib: float
    ) -> StepSum:
        """Sum the gradients over all ranks, in place, and return the sums of the numbers.

        `loss` is this rank's part of the global mean. The waiting time that is reported is that
        of the step before: this one's is known only when it is over.
        """
        own = (tokens, compute_seconds, self._waited, peak_memory_mib)
        numbers = torch.zeros(2 + len(_OWN) * self._world.size, dtype=torch.float64)
        numbers[0], numbers[1] = loss, float(stop)
        numbers[2 + self._world.rank :: self._world.size] = torch.tensor(own, dtype=torch.float64)
        self._buffer[self._size :] = numbers.to(self._buffer)

        started = time.perf_counter()
        if self._buffer.device.type == self._world.gradient_device.type:
            self._world.sum_(self._buffer)
        else:
            there = self._buffer.to(self._world.gradient_device)
            self._world.sum_(there)
            self._buffer.copy_(there)
        summed = self._buffer[self._size :].tolist()
        self._waited = time.perf_counter() - started

        by_rank = {
            name: summed[2 + index * self._world.size :][: self._world.size]
            for index, name in enumerate(_OWN)
        }
        by_rank["tokens"] = [round(count) for count in by_rank["tokens"]]
        return StepSum(loss=summed[0], stop=summed[1] > 0, **by_rank)
