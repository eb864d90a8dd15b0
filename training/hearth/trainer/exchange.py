"""The one all-reduce of a step: summed gradients plus each rank's flags and measurements.

Every gradient is a view into one flat buffer, so the backward pass writes where the all-reduce
reads. The step's flags and measurements follow the gradients in the buffer and travel in the same
sum. Gradients are summed, never averaged: dividing by the number of ranks and multiplying again is
inexact where that number is not a power of two.

The all-reduce starts after the last gradient. Overlapping it with the backward pass could hide the
time of the last micro-batch at most, one of many in a step, and a rank that runs out of memory
could not retry its rows: part of their gradients would have been sent.

With `compress: bf16` a copy of half the size is sent. Gradients and their partial sums are rounded
to 8 bits; flags and measurements are not: each is split into three bf16, together 24 bits.

In a pipeline each stage keeps the gradients of its own layers: only flags and measurements travel,
in float64, with the squared norm of each stage's gradients among them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch

from hearth.ranks.hop import Hop
from hearth.ranks.world import World


@dataclass(frozen=True)
class StepSum:
    """Summed result of a step or a round of local steps.

    The type of a field says how it is summed: if any rank sets a flag, every rank acts on it. Lists
    hold one number per rank of the run, 0 for a rank that was not in the group: each rank fills
    only its own slot, so the sum acts as an all-gather.

    Attributes:
        loss: mean over the step's label tokens; for a round, the sum of its steps' means.
        stop: whether the run ends after this step.
        keep: whether a checkpoint follows this step.
        pause: whether the ranks leave their group after this step, for another one.
        compute_seconds: including the optimizer's previous step, or its steps in the round.
        celsius: temperature of the GPU or processor; 0 if unknown.
        joules: energy of the rank's node since the rank reported it before.
        metered: 1 for a rank that measures its node's energy, else 0.
        disk: state of the disk of a rank's node (see `record.own_disk`).
        labels: label tokens of a rank's rows; for a round, those that it learned from.
        taken, skipped, norm: for a round (see `rounds.Local`); else 0.
        squares: in a pipeline, the squared norm of the gradients of a rank's layers; else 0.
        chosen_reward, rejected_reward, right, chosen, rejected: sums of an objective of
            preferences (`preferences.SUMS`); else 0.
        hop_bytes, hop_seconds: of the ring's hop to a rank in the exchange before; 0 if not seen.
    """

    loss: float
    chosen_reward: float
    rejected_reward: float
    right: float
    chosen: float
    rejected: float
    stop: bool
    keep: bool
    pause: bool
    tokens: list[int]
    compute_seconds: list[float]
    wait_seconds: list[float]
    peak_memory_mib: list[float]
    celsius: list[float]
    joules: list[float]
    metered: list[int]
    disk: list[int]
    micro_batch: list[int]
    labels: list[int]
    taken: list[int]
    skipped: list[int]
    norm: list[float]
    squares: list[float]
    hop_bytes: list[float]
    hop_seconds: list[float]

    def exchange_seconds(self, members: Sequence[int]) -> float:
        """Return the seconds of the exchange before, without waiting for slower ranks.

        The member that waited least was the last to begin it.
        """
        return min(self.wait_seconds[rank] for rank in members)


_FLAGS = tuple(each.name for each in fields(StepSum) if each.type == "bool")
_COUNTS = tuple(each.name for each in fields(StepSum) if each.type == "list[int]")
_MEASURES = tuple(each.name for each in fields(StepSum) if each.type in ("float", "list[float]"))
_OWN = (*_MEASURES, *_COUNTS)
_TOTALS = tuple(each.name for each in fields(StepSum) if each.type == "float")


class Exchange:
    """The flat buffer of a run's gradients, and its sum over the ranks.

    Args:
        parts: number of summed tensors, each as large as all gradients; 1 for a plain step.
        keeps: whether each rank keeps its gradients, those of its own layers.

    Attributes:
        given: bytes that this rank has contributed to sums with other ranks so far.
        waited: seconds of the newest step that passed in sums.
    """

    def __init__(
        self,
        parameters: Sequence[torch.nn.Parameter],
        world: World,
        compress: str = "none",
        parts: int = 1,
        keeps: bool = False,
    ) -> None:
        dtypes = {parameter.dtype for parameter in parameters}
        if len(dtypes) != 1:
            raise ValueError(f"all trainable parameters must have one type, not {dtypes}")
        self._world = world
        self._compressed, self._keeps = compress == "bf16", keeps
        self._parts = parts
        self._size = parts * sum(parameter.numel() for parameter in parameters)
        self._numbers = len(_FLAGS) + len(_OWN) * world.size
        self._buffer = torch.zeros(
            self._size + self._numbers, dtype=dtypes.pop(), device=parameters[0].device
        )
        self.waited = 0.0
        self.given = 0
        self._hop, self._hop_of = Hop(), 0
        start = 0
        for parameter in parameters:
            view = self._buffer[start : start + parameter.numel()].view_as(parameter)
            parameter.grad = view
            start += parameter.numel()

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """The flat tensors that are summed; the first holds the gradients."""
        return self._buffer[: self._size].chunk(self._parts)

    @property
    def bytes(self) -> int:
        """Bytes that each rank contributes to one sum."""
        if self._keeps:
            return 8 * self._numbers
        if self._compressed:
            return 2 * (self._size + 3 * self._numbers)
        return self._buffer.numel() * self._buffer.element_size()

    def clear(self) -> None:
        """Set the gradients to zero, which is what a rank without rows contributes."""
        self.parts[0].zero_()

    def run(self, flags: Mapping[str, bool], **own: float) -> StepSum:
        """Sum `parts` over all ranks in place; return the flags and measurements of all ranks.

        `own` are this rank's measurements, named as in `StepSum`; those left out count as 0. `loss`
        is this rank's part of the global mean. To `wait_seconds`, those before this call, the ones
        in the sums of the previous step are added: that of this step is not over yet.
        """
        own["wait_seconds"] = own.get("wait_seconds", 0.0) + self.waited
        hop = self._hop if self._hop_of == self._world.generation else Hop()
        own["hop_bytes"], own["hop_seconds"] = hop.bytes, hop.seconds
        numbers = torch.zeros(self._numbers, dtype=torch.float64)
        for index, name in enumerate(_FLAGS):
            numbers[index] = flags[name]
        for index, name in enumerate(_OWN):
            numbers[len(_FLAGS) + index * self._world.size + self._world.rank] = own.get(name, 0)
        self._buffer[self._size :] = numbers.to(self._buffer)

        started = time.perf_counter()
        if self._keeps:
            self._sum(numbers)
            summed = numbers.tolist()
        elif self._compressed:
            summed = self._sum_compressed()
        else:
            self._sum(self._buffer)
            summed = self._buffer[self._size :].tolist()
        self.waited = time.perf_counter() - started
        self._hop, self._hop_of = self._world.hop, self._world.generation
        self.given += 0 if self._world.alone else self.bytes

        by_rank = {
            name: summed[len(_FLAGS) + index * self._world.size :][: self._world.size]
            for index, name in enumerate(_OWN)
        }
        for name in _COUNTS:
            by_rank[name] = [round(count) for count in by_rank[name]]
        flags = {name: summed[index] > 0 for index, name in enumerate(_FLAGS)}
        return StepSum(**flags, **by_rank | {name: sum(by_rank[name]) for name in _TOTALS})

    def share(self, updates: torch.Tensor) -> None:
        """Sum the optimizer's `updates`, each rank's finished part, in place."""
        started = time.perf_counter()
        self._sum(updates)
        self.waited += time.perf_counter() - started
        if not self._world.alone:
            self.given += updates.numel() * updates.element_size()

    def _sum(self, buffer: torch.Tensor) -> None:
        """Replace `buffer` by its sum over all ranks, on any device."""
        if buffer.device.type == self._world.gradient_device.type:
            self._world.sum_(buffer)
        else:
            there = buffer.to(self._world.gradient_device)
            self._world.sum_(there)
            buffer.copy_(there)

    def _sum_compressed(self) -> list[float]:
        """Sum the gradients in place as bf16; return the flags and measurements, exact."""
        gradients, numbers = self._buffer[: self._size], self._buffer[self._size :].float()
        pieces = []
        for _ in range(3):
            pieces.append(numbers.bfloat16())
            numbers = numbers - pieces[-1].float()
        travels = torch.cat([gradients.bfloat16(), *pieces])
        self._sum(travels)
        gradients.copy_(travels[: self._size])
        return travels[self._size :].float().view(3, -1).sum(dim=0).tolist()
