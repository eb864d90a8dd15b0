"""Torch's process groups: all ranks of a run over gloo, and NCCL for gradients.

Values (facts, names, files) travel over gloo, as JSON or bytes: torch would pickle objects, and
unpickling runs code of whoever sent them. Gradients use NCCL if every rank has an NVIDIA GPU of its
own, else gloo, so that a CPU or a shared card can join.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hearth.base.packet_filter import listening
from hearth.ranks.meeting import FORM_TIMEOUT
from hearth.ranks.orders import Form
from hearth.ranks.ring import Ring


class WholeGroup:
    """torch's default group, which has all ranks of a run, once it is initialised."""

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of each rank."""
        own = json.dumps(value).encode()
        lengths = [torch.tensor(0) for _ in range(dist.get_world_size())]
        dist.all_gather(lengths, torch.tensor(len(own)))
        longest = int(max(lengths))
        buffers = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
        dist.all_gather(buffers, _tensor(own.ljust(longest)))
        return [json.loads(buffer.numpy().tobytes()) for buffer in buffers]

    def bytes_from(self, source: int, content: bytes) -> bytes:
        """Return the `content` of rank `source` on every rank."""
        length = torch.tensor(len(content))
        dist.broadcast(length, src=source)
        buffer = _tensor(content if dist.get_rank() == source else bytes(int(length)))
        dist.broadcast(buffer, src=source)
        return buffer.numpy().tobytes()

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by that of rank `source`."""
        dist.broadcast(buffer, src=source)

    def sum(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a tensor on the CPU, by its sum over all ranks."""
        dist.all_reduce(buffer)

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        dist.barrier()

    def close(self) -> None:
        """Destroy the group, and all others of torch."""
        dist.destroy_process_group()


def _tensor(content: bytes) -> torch.Tensor:
    """Return a tensor (bytes,) with a copy of `content`."""
    return torch.tensor(np.frombuffer(content, dtype=np.uint8))


def have_own_gpus(identifiers: Sequence[str]) -> bool:
    """Return whether all ranks have an NVIDIA GPU, and none shares it with another."""
    return all(identifiers) and len(set(identifiers)) == len(identifiers)


def nccl_in_place(ring: Ring, order: Form, index: int, size: int, allowed: timedelta) -> Any:
    """Return an NCCL group of a ring's members.

    Raises:
        OSError: the first member cannot open a store.
        RuntimeError: a member does not reach it.
    """
    listener = None
    port = b""
    if index == 0:
        opened = listening(order.address, 0, order.clients)
        port = str(opened.getsockname()[1]).encode()
        listener = opened.detach()
    store = dist.TCPStore(
        order.address,
        int(ring.bytes_from(0, port)),
        is_master=index == 0,
        timeout=timedelta(seconds=FORM_TIMEOUT),
        wait_for_workers=False,
        master_listen_fd=listener,
        use_libuv=False,  # libuv does not accept a listening socket (torch 2.13)
    )
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = allowed
    return dist.ProcessGroupNCCL(store, index, size, options)
