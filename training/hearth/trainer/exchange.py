"""The one exchange of a step: summed gradients and all that the ranks must tell each other.

Every gradient is a view into one flat buffer, so the backward pass writes where the all-reduce
reads. Behind the gradients lie the small numbers of the step: whatever all ranks must agree on
travels in the same sum. Gradients are summed, never averaged: dividing by the number of ranks and
multiplying again is inexact where that number is not a power of two.

It begins when the last gradient is there. Hidden behind the backward pass it could save that of the
last micro-batch at most, one of many in a step, and a rank that runs out of memory there could not
begin its rows again: part of them would have left it.

With `compress: bf16` a copy of half the size travels. Its gradients are rounded to 8 bits, and so
is every sum on the way; the numbers are not: each goes as three, which together hold 24 bits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hearth.ranks.world import World

# What all do once one of them asks for it.
_FLAGS = ("stop", "keep")

# What every rank reports of itself; each writes only its own slot, so the sum is a gathering.
_COUNTS = ("tokens", "micro_batch", "labels", "taken", "skipped")
_MEASURES = ("loss", "compute_seconds", "wait_seconds", "peak_memory_mib", "celsius", "norm")
_OWN = (*_MEASURES, *_COUNTS)


@dataclass(frozen=True)
class StepSum:
    """What a step, or a round of local ones, came to; the sequences hold one number a rank.

    Attributes:
        loss: its mean over the step's label tokens; of a round, the sum of its steps'.
        stop: whether the run is to end after this step.
        keep: whether a checkpoint is to be taken after it.
        compute_seconds: those of the optimizer included, in its step before or in the round.
        celsius: how warm what computes is; 0 where that is unknown.
        labels, taken, skipped, norm: of a round (see `rounds.Local`); else 0.
    """

    loss: float
    stop: bool
    keep: bool
    tokens: list[int]
    compute_seconds: list[float]
    wait_seconds: list[float]
    peak_memory_mib: list[float]
    celsius: list[float]
    micro_batch: list[int]
    labels: list[int]
    taken: list[int]
    skipped: list[int]
    norm: list[float]


class Exchange:
    """The flat buffer of a run's gradients, and its sum over the ranks.

    Args:
        parts: tensors as large as all gradients that are summed; a step has no others than these.

    Attributes:
        given: bytes that this rank has given into sums with others so far.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        world: World,
        compress: str = "none",
        parts: int = 1,
    ) -> None:
        dtypes = {parameter.dtype for parameter in parameters}
        if len(dtypes) != 1:
            raise ValueError(f"all trainable parameters must have one type, not {dtypes}")
        self._world = world
        self._compressed = compress == "bf16"
        self._parts = parts
        self._size = parts * sum(parameter.numel() for parameter in parameters)
        self._numbers = len(_FLAGS) + len(_OWN) * world.size
        self._buffer = torch.zeros(
            self._size + self._numbers, dtype=dtypes.pop(), device=parameters[0].device
        )
        self._waited = 0.0
        self.given = 0
        start = 0
        for parameter in parameters:
            view = self._buffer[start : start + parameter.numel()].view_as(parameter)
            parameter.grad = view
            start += parameter.numel()

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """The flat tensors that are summed; the gradients lie in the first."""
        return self._buffer[: self._size].chunk(self._parts)

    @property
    def bytes(self) -> int:
        """What each rank gives into one sum."""
        if self._compressed:
            return 2 * (self._size + 3 * self._numbers)
        return self._buffer.numel() * self._buffer.element_size()

    def clear(self) -> None:
        """Set the gradients to zero; a rank without rows leaves it at that."""
        self.parts[0].zero_()

    def run(
        self,
        loss: float,
        stop: bool,
        keep: bool,
        tokens: int,
        compute_seconds: float,
        peak_memory_mib: float,
        celsius: float,
        micro_batch: int,
        labels: int = 0,
        taken: int = 0,
        skipped: int = 0,
        norm: float = 0.0,
    ) -> StepSum:
        """Sum `parts` over all ranks, in place, and return the sums of the numbers.

        `loss` is this rank's part of the global mean. The waiting time that is reported is that
        of the step before: this one's is known only when it is over.
        """
        measures = (loss, compute_seconds, self._waited, peak_memory_mib, celsius, norm)
        own = (*measures, tokens, micro_batch, labels, taken, skipped)
        numbers = torch.zeros(self._numbers, dtype=torch.float64)
        numbers[: len(_FLAGS)] = torch.tensor((stop, keep), dtype=torch.float64)
        first = len(_FLAGS) + self._world.rank
        numbers[first :: self._world.size] = torch.tensor(own, dtype=torch.float64)
        self._buffer[self._size :] = numbers.to(self._buffer)

        started = time.perf_counter()
        if self._compressed:
            summed = self._sum_compressed()
        else:
            self._sum(self._buffer)
            summed = self._buffer[self._size :].tolist()
        self._waited = time.perf_counter() - started
        self.given += self.bytes if self._world.size > 1 else 0

        by_rank = {
            name: summed[len(_FLAGS) + index * self._world.size :][: self._world.size]
            for index, name in enumerate(_OWN)
        }
        for name in _COUNTS:
            by_rank[name] = [round(count) for count in by_rank[name]]
        flags = {name: summed[index] > 0 for index, name in enumerate(_FLAGS)}
        return StepSum(**flags, **by_rank | {"loss": sum(by_rank["loss"])})

    def _sum(self, buffer: torch.Tensor) -> None:
        """Replace `buffer` by its sum over all ranks, wherever it lies."""
        if buffer.device.type == self._world.gradient_device.type:
            self._world.sum_(buffer)
        else:
            there = buffer.to(self._world.gradient_device)
            self._world.sum_(there)
            buffer.copy_(there)

    def _sum_compressed(self) -> list[float]:
        """Sum the gradients by way of bf16, in place; return the sums of the numbers, exact."""
        gradients, numbers = self._buffer[: self._size], self._buffer[self._size :].float()
        pieces = []
        for _ in range(3):
            pieces.append(numbers.bfloat16())
            numbers = numbers - pieces[-1].float()
        travels = torch.cat([gradients.bfloat16(), *pieces])
        self._sum(travels)
        gradients.copy_(travels[: self._size])
        return travels[self._size :].float().view(3, -1).sum(dim=0).tolist()
