"""Tensors from other ranks, received in threads while this rank computes.

A process group cannot tell whether a tensor has arrived, only wait for it; so a thread for each
kind of tensor waits, and the rank takes whatever is there first.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from hearth.ranks.world import World


@dataclass(frozen=True)
class Series:
    """Tensors of one kind: from which rank, of which type, and the shape of each, in order."""

    source: int
    dtype: torch.dtype
    shapes: Sequence[tuple[int, ...]]


class Arrivals:
    """The tensors of several `series` by kind, on the CPU; of each at most `ahead` wait here."""

    def __init__(self, world: World, series: Mapping[str, Series], ahead: int) -> None:
        self._world, self._ahead = world, ahead
        self._arrived: dict[str, deque[torch.Tensor]] = {kind: deque() for kind in series}
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        for kind, each in series.items():
            threading.Thread(
                target=self._receive, args=(kind, each), name=kind, daemon=True
            ).start()

    def take(self, kinds: Sequence[str]) -> tuple[str, torch.Tensor]:
        """Return the kind and the oldest tensor of the first of `kinds` that is here; wait for one.

        Raises the error of a rank that is lost.
        """
        with self._changed:
            while True:
                if self._error:
                    raise self._error
                for kind in kinds:
                    if self._arrived[kind]:
                        self._changed.notify_all()
                        return kind, self._arrived[kind].popleft()
                self._changed.wait()

    def has(self, kind: str) -> bool:
        """Return whether a tensor of this kind is here."""
        with self._changed:
            return bool(self._arrived[kind])

    def _receive(self, kind: str, series: Series) -> None:
        """Receive all tensors of a series, one after the other."""
        arrived = self._arrived[kind]
        try:
            for shape in series.shapes:
                with self._changed:
                    self._changed.wait_for(lambda: len(arrived) < self._ahead)
                buffer = torch.empty(shape, dtype=series.dtype)
                self._world.receive_(buffer, series.source)
                with self._changed:
                    arrived.append(buffer)
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()
