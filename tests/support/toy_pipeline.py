"""Stand-ins of a pipeline: ranks that are threads, the wires between them, and layers of a toy."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hearth.data.rows import Batch

WIDTH, TOKENS = 4, 16


class Wires:
    """A stand-in of the process group between `ranks` threads."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._queues: dict[Any, queue.Queue] = {}
        self._lock = threading.Lock()
        self.kept: dict[int, int] = {}
        """The most tensors that a rank had sent, by rank, and not let go of."""

    def queue(self, source: Any, target: Any) -> queue.Queue:
        with self._lock:
            return self._queues.setdefault((source, target), queue.Queue())

    def world(self, rank: int) -> SimpleNamespace:
        sent: list[weakref.ref[torch.Tensor]] = []

        def receive_(buffer, source):
            got = self.queue(source, rank).get(timeout=30)
            if isinstance(got, Exception):
                raise got
            got, taken = got
            taken.set()
            assert got.shape == buffer.shape
            assert got.dtype == buffer.dtype
            buffer.copy_(got)

        def send(buffer, target):
            taken = threading.Event()
            self.queue(rank, target).put((buffer.clone(), taken))
            sent.append(weakref.ref(buffer))
            alive = sum(each() is not None for each in sent)
            self.kept[rank] = max(self.kept.get(rank, 0), alive)
            return SimpleNamespace(wait=taken.wait)

        return SimpleNamespace(
            rank=rank,
            layout=[f"node{rank}" for rank in range(self._ranks)],
            leads=rank == 0,
            send=send,
            receive_=receive_,
            gather=lambda value: self._gather(rank, value),
        )

    def _gather(self, rank: int, value: Any) -> list[Any]:
        for other in range(self._ranks):
            self.queue(rank, f"values of {other}").put(value)
        return [
            self.queue(other, f"values of {rank}").get(timeout=30) for other in range(self._ranks)
        ]


class ToyRows:
    """Rows of `length` tokens each, drawn at random; all rows of a batch must be equally long."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self.tokens = np.array(lengths)
        random = np.random.default_rng(0)
        self._ids = [random.integers(0, TOKENS, length) for length in lengths]

    def batch(self, numbers: np.ndarray) -> Batch:
        ids = np.stack([self._ids[number] for number in numbers])
        return Batch(ids, ids, ids, [ids.size])


class Layers(torch.nn.Module):
    """A stand-in of a stage's layers, which may be slow.

    It runs out of memory in the pass `fails_at`, and where it gets more than `holds` rows.
    """

    device, hidden_size, hidden_dtype = torch.device("cpu"), WIDTH, torch.float64

    def __init__(self, layers, first, last, pauses=(0.0,), fails_at=None, holds=99):
        super().__init__()
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(TOKENS, WIDTH, dtype=torch.float64).requires_grad_(False)
        every = [torch.nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(6)]
        self.own = torch.nn.ModuleList(every[number] for number in layers)
        self.first, self.last = first, last
        self._pauses, self._fails_at, self._passes = list(pauses), fails_at, 0
        self.layers, self._holds = layers, holds

    def hidden(self, batch, hidden, seeds):
        self._passes += 1
        if self._passes == self._fails_at or len(batch.input_ids) > self._holds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        time.sleep(self._pauses[self._passes % len(self._pauses)])
        if hidden is None:
            hidden = self.embed(torch.as_tensor(batch.input_ids))
        for layer in self.own:
            hidden = torch.tanh(layer(hidden)) * (1 + sum(seeds))
        return hidden

    def stage_loss(self, batch, hidden, denominator, seeds):
        return self.hidden(batch, hidden, seeds).square().sum() / denominator

    @property
    def network(self) -> torch.nn.Module:
        return self

    def before_step(self) -> None:
        """Nothing is done between two steps."""

    def release(self) -> None:
        """Nothing is cached."""

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        return self.own.named_parameters()


def together(ranks: int, run: Callable[[int], Any]) -> list[Any]:
    """Return the results of `run`, called with the number of each rank in a thread of its own.

    An error is a result, too.
    """
    found: dict[int, Any] = {}

    def one(rank: int) -> None:
        try:
            found[rank] = run(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == ranks
    return [found[rank] for rank in range(ranks)]
