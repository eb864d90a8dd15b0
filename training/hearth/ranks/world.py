"""The ranks of a run and their communication.

Values (facts, names, files) travel over gloo, as JSON or bytes: torch would pickle objects, and
unpickling runs code of whoever sent them. Gradients use NCCL if every rank has an NVIDIA GPU of its
own, else gloo, so that a CPU or a shared card can join.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hearth.base.errors import HearthError
from hearth.ranks.memory import limit_unified_memory

# Default timeouts of the process groups. Supervisors detect a lost peer by a heartbeat, so theirs
# need only exceed the longest wait for a healthy one: with `sync_every` a round of a slow rank.
_BY_HAND, _SUPERVISED = timedelta(minutes=30), timedelta(days=1)


@dataclass(frozen=True)
class World:
    """This rank and its process group.

    `generation` numbers the launches of the run under supervisors; started by hand it is 0.
    """

    rank: int
    size: int
    local_rank: int
    node: str
    device: torch.device
    gradients: dist.ProcessGroup | None
    gradient_device: torch.device
    generation: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which writes the files that only one rank may write."""
        return self.rank == 0

    def say(self, text: str) -> None:
        """Print a line that begins with this rank's node."""
        print(f"{self.node}: {text}", flush=True)

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every rank, in rank order, on every rank.

        Tuples become lists, here and in the other methods.
        """
        return _gathered(value, self.size)

    def from_leader(self, value: Any) -> Any:
        """Return rank 0's JSON `value` on every rank."""
        return self.from_rank(0, value)

    def from_rank(self, rank: int, value: Any) -> Any:
        """Return the JSON `value` of `rank` on every rank."""
        own = json.dumps(value).encode() if self.rank == rank else b""
        return json.loads(self.bytes_from(rank, own))

    def bytes_from(self, rank: int, content: bytes) -> bytes:
        """Return the `content` of `rank` on every rank."""
        if self.size == 1:
            return content
        length = torch.tensor(len(content))
        dist.broadcast(length, src=rank)
        buffer = _tensor(content if self.rank == rank else bytes(int(length)))
        dist.broadcast(buffer, src=rank)
        return buffer.numpy().tobytes()

    def broadcast_(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by rank 0's."""
        if self.size > 1:
            dist.broadcast(buffer, src=0)

    def sum_(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a tensor on `gradient_device`, by its sum over all ranks."""
        if self.size > 1:
            dist.all_reduce(buffer, group=self.gradients)

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        if self.size > 1:
            dist.barrier()


def _gathered(value: Any, size: int) -> list[Any]:
    """Return the JSON `value` of each of `size` ranks."""
    own = json.dumps(value).encode()
    if size == 1:
        return [json.loads(own)]
    lengths = [torch.tensor(0) for _ in range(size)]
    dist.all_gather(lengths, torch.tensor(len(own)))
    longest = int(max(lengths))
    buffers = [torch.empty(longest, dtype=torch.uint8) for _ in range(size)]
    dist.all_gather(buffers, _tensor(own.ljust(longest)))
    return [json.loads(buffer.numpy().tobytes()) for buffer in buffers]


def _tensor(content: bytes) -> torch.Tensor:
    """Return a tensor (bytes,) with a copy of `content`."""
    return torch.tensor(np.frombuffer(content, dtype=np.uint8))


def has_nvidia_gpu() -> bool:
    """Return whether torch can use an NVIDIA GPU (its ROCm builds call AMD GPUs `cuda` too)."""
    return torch.cuda.is_available() and torch.version.cuda is not None


def own_device(environment: Mapping[str, str] = os.environ) -> torch.device:
    """Return this local rank's device: its NVIDIA GPU, set as the current one, or the CPU."""
    if not has_nvidia_gpu():
        return torch.device("cpu")
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    limit_unified_memory(device, int(environment.get("LOCAL_WORLD_SIZE", "1")))
    return device


def join(seconds: float = 0, environment: Mapping[str, str] = os.environ) -> World:
    """Join the process group of torchrun's variables; without them return a world of one rank.

    A collective fails after `seconds`; 0 is a day under supervisors and half an hour by hand.
    """
    rank = int(environment.get("RANK", "0"))
    size = int(environment.get("WORLD_SIZE", "1"))
    local_rank = int(environment.get("LOCAL_RANK", "0"))
    node = environment.get("HEARTH_NODE") or os.uname().nodename
    generation = int(environment.get("HEARTH_GENERATION", "0"))
    device = gradient_device = own_device(environment)
    gradients = None
    if size > 1:
        usual = _SUPERVISED if "HEARTH_GENERATION" in environment else _BY_HAND
        timeout = timedelta(seconds=seconds) if seconds else usual
        dist.init_process_group("gloo", timeout=timeout)
        on_gpu = device.type == "cuda"
        own = str(torch.cuda.get_device_properties(device).uuid) if on_gpu else None
        gpus = _gathered(own, size)
        if all(gpus) and len(set(gpus)) == size:
            gradients = dist.new_group(backend="nccl", timeout=timeout)
        else:
            gradient_device = torch.device("cpu")
    return World(rank, size, local_rank, node, device, gradients, gradient_device, generation)


def leave(world: World) -> None:
    """Destroy the process group, after a barrier.

    Without the barrier, gloo aborts a rank whose peer destroys the group while it is still
    communicating (measured: 3 to 5 of 12 runs without the barrier, 0 of 24 with it).
    """
    if world.size > 1:
        dist.barrier()
        dist.destroy_process_group()


def agree(world: World, facts: Mapping[str, Any]) -> None:
    """Check that each of `facts` is the same on all ranks that have it.

    Raises `HearthError` on all ranks, naming the nodes that differ from the first rank.
    """
    everyone = world.gather((world.node, dict(facts)))
    findings = []
    for name in dict.fromkeys(key for _, found in everyone for key in found):
        (first, leader, expected), *others = (
            (rank, node, found[name])
            for rank, (node, found) in enumerate(everyone)
            if name in found
        )
        findings += [
            f"{name}: rank {rank} ({node}) has {own}, but rank {first} ({leader}) has {expected}; "
            "they must be equal on all nodes"
            for rank, node, own in others
            if own != expected
        ]
    if findings:
        raise HearthError(*findings)
