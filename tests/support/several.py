"""Ranks as threads: a stand-in of `World` for what ranks tell each other, without a network."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

from hearth.ranks.hop import Hop
from support.waiting import HANG


@dataclass
class _Table:
    """The ranks' messages; a rank goes on once all have written theirs."""

    size: int
    said: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.everyone = threading.Barrier(self.size, timeout=HANG)


@dataclass
class ThreadWorld:
    """One rank of several, each on a node of its own; keeps what rank 0 or another has sent."""

    rank: int
    table: _Table
    local_rank: int = 0
    sent: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keeps = self.local_rank == 0

    gradients = None
    device = gradient_device = torch.device("cpu")
    generation = 0
    control = supervisor = None
    leader = 0
    carrier = "gloo"
    hop = Hop()

    @property
    def members(self) -> tuple[int, ...]:
        return tuple(range(self.size))

    @property
    def layout(self) -> tuple[str, ...]:
        return tuple(f"node{rank}" for rank in self.members)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self.layout

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def node(self) -> str:
        return f"node{self.rank}"

    @property
    def size(self) -> int:
        return self.table.size

    def say(self, text: str) -> None:
        print(text)

    def sum_(self, buffer: torch.Tensor) -> None:
        buffer.copy_(torch.stack(self._everyones(buffer.clone())).sum(dim=0))

    def _everyones(self, value: Any) -> list[Any]:
        self.table.said[self.rank] = value
        self.table.everyone.wait()
        values = [self.table.said[rank] for rank in range(self.table.size)]
        self.table.everyone.wait()
        return values

    def gather(self, value: Any) -> list[Any]:
        return self._everyones(json.loads(json.dumps(value)))

    def from_rank(self, rank: int, value: Any) -> Any:
        self.sent.append(self.gather(value)[rank])
        return self.sent[-1]

    def bytes_from(self, rank: int, content: bytes) -> bytes:
        self.sent.append(self._everyones(content)[rank])
        return self.sent[-1]

    def broadcast_(self, buffer: torch.Tensor, source: int | None = None) -> None:
        self.sent.append(self._everyones(buffer.clone())[source or 0])
        buffer.copy_(self.sent[-1])

    def from_leader(self, value: Any) -> Any:
        return self.from_rank(0, value)

    def barrier(self) -> None:
        self.table.everyone.wait()

    def check(self) -> None:
        """Never interrupted."""


def on_ranks(size: int, act: Callable[[ThreadWorld], Any]) -> list[Any]:
    """Call `act` on all ranks at once and return the results by rank."""
    table = _Table(size)
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(act, [ThreadWorld(rank, table) for rank in range(size)]))
