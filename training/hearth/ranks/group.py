"""Torch's process groups: all ranks of a run over gloo, and NCCL for gradients.

Values (facts, names, files) travel over gloo, as JSON or bytes: torch would pickle objects, and
unpickling runs code of their sender. Gradients use NCCL if every rank has an NVIDIA GPU of its
own, else gloo, so that a CPU or a shared card can join.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from hearth.base.packet_filter import listening
from hearth.ranks.alarm import (
    LONGEST_BYTES,
    LONGEST_VALUE,
    Alarm,
    GroupBroken,
    check_length,
    check_own_length,
    from_bytes,
    to_bytes,
)
from hearth.ranks.control_protocol import Form
from hearth.ranks.rendezvous import FORM_TIMEOUT
from hearth.ranks.ring import Ring

_GLANCE = 0.002
"""Seconds between two glances at a group that is being connected."""


class WholeGroup:
    """torch's default group, which has all ranks of a run, once it is initialised."""

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of each rank."""
        own = to_bytes(value)
        check_own_length(len(own), LONGEST_VALUE)
        lengths = [torch.tensor(0) for _ in range(dist.get_world_size())]
        dist.all_gather(lengths, torch.tensor(len(own)))
        longest = int(max(lengths))
        check_length(longest, LONGEST_VALUE, "a rank")
        buffers = [torch.empty(longest, dtype=torch.uint8) for _ in lengths]
        dist.all_gather(buffers, _tensor(own.ljust(longest)))
        return [
            from_bytes(buffer.numpy().tobytes(), f"rank {rank}")
            for rank, buffer in enumerate(buffers)
        ]

    def bytes_from(self, source: int, content: bytes) -> bytes:
        """Return the `content` of rank `source` on every rank."""
        if dist.get_rank() == source:
            check_own_length(len(content), LONGEST_BYTES)
        length = torch.tensor(len(content))
        dist.broadcast(length, src=source)
        check_length(int(length), LONGEST_BYTES, f"rank {source}")
        buffer = _tensor(content if dist.get_rank() == source else bytes(int(length)))
        dist.broadcast(buffer, src=source)
        return buffer.numpy().tobytes()

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by that of rank `source`."""
        dist.broadcast(buffer, src=source)

    def sum(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a tensor on the CPU, by its sum over all ranks."""
        dist.all_reduce(buffer)

    def send(self, buffer: torch.Tensor, target: int) -> Any:
        """Begin to send `buffer`, a contiguous tensor on the CPU; return the work to wait for."""
        return dist.isend(buffer, target)

    def receive(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by the next one that `source` sends."""
        dist.recv(buffer, source)

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


def nccl_in_place(
    ring: Ring, order: Form, index: int, size: int, allowed: timedelta, device: torch.device
) -> Callable[[], Any]:
    """Return a function that connects the NCCL group of a ring's members, and returns it.

    It sums once: NCCL connects in the first sum. It may wait without end for a member that stands
    still, and raises `OSError` or `RuntimeError` if a member is not reached.

    Raises `OSError` if the first member cannot open a store.
    """
    opened = listening(order.address, 0, order.clients) if index == 0 else None
    port = int(ring.bytes_from(0, str(opened.getsockname()[1]).encode() if opened else b""))

    def connect() -> Any:
        torch.cuda.set_device(device)  # of this thread
        store = dist.TCPStore(
            order.address,
            port,
            is_master=index == 0,
            timeout=timedelta(seconds=FORM_TIMEOUT),
            wait_for_workers=False,
            master_listen_fd=opened.detach() if opened else None,
            use_libuv=False,  # libuv does not accept a listening socket (torch 2.13)
        )
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = allowed
        group = dist.ProcessGroupNCCL(store, index, size, options)
        try:
            group.allreduce([torch.zeros(1, device=device)]).wait()
            torch.cuda.synchronize(device)
        except BaseException:
            group.abort()
            raise
        return group

    return connect


def connected(connect: Callable[[], Any], alarm: Alarm) -> Any:
    """Return the group that `connect` returns, which has an `abort`.

    It is called in a thread of its own, which is left behind when the alarm sounds, as neither
    torch's store nor NCCL can be interrupted while they wait for a member. A group that is there in
    the end after all is aborted.

    Raises `GroupBroken` if the alarm sounds, and whatever `connect` raises.
    """
    found: Future[Any] = Future()

    def run() -> None:
        try:
            group = connect()
        except BaseException as error:
            if found.set_running_or_notify_cancel():
                found.set_exception(error)
        else:
            if found.set_running_or_notify_cancel():
                found.set_result(group)
            else:
                group.abort()

    threading.Thread(target=run, name="connects", daemon=True).start()
    try:
        while not found.done():
            alarm.wait({}, _GLANCE)
        alarm.wait({}, 0)
    except GroupBroken:
        if not found.cancel():
            with suppress(Exception):
                found.result().abort()
        raise
    return found.result()
