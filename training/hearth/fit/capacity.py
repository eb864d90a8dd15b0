"""Memory available to a rank: its share of a GPU, or of the computer's free memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True)
class Room:
    """The memory of one rank, in bytes.

    Attributes:
        gpu: name of the card; '' for a rank on a CPU.
        unified: whether the card has no memory of its own, but shares the computer's.
        ranks: number of ranks that share the card or the computer.
        limited: whether `memory_limit` caps the memory of a rank on a CPU.
    """

    size: int
    gpu: str = ""
    ranks: int = 1
    unified: bool = False
    limited: bool = False

    @property
    def description(self) -> str:
        """Description of the available memory, as a clause that follows "and"."""
        size = f"{self.size / GIB:.1f} GiB"
        if self.limited:
            return f"memory_limit gives it {size}"
        shared = f" for each of {self.ranks} ranks" if self.ranks > 1 else ""
        if self.gpu:
            has = "shares memory with the CPU, of which it has" if self.unified else "has"
            return f"{self.gpu} {has} {size}{shared}"
        return f"{size} of memory are free{shared}"


def room_of(
    facts: Mapping[str, Any], nproc: int, nodes_here: int = 1, memory_limit: float | None = None
) -> Room:
    """Return the room of each of the `nproc` ranks of a node; 0 means one per GPU, at least one.

    `facts` are `cuda` (whether its torch can use NVIDIA GPUs), `gpus` (`name` and `memory_mib` of
    each; None where it shares the computer's memory) and `free_mib` of the computer, which
    `nodes_here` nodes share.
    """
    gpus = facts["gpus"] if facts["cuda"] else []
    ranks = nodes_here * (nproc or max(1, len(gpus)))
    if not gpus:
        if memory_limit:
            return Room(round(memory_limit * GIB), limited=True)
        return Room((facts["free_mib"] << 20) // ranks, ranks=ranks)
    mebibytes, name, unified = min(
        (gpu["memory_mib"] or facts["free_mib"], gpu["name"], not gpu["memory_mib"]) for gpu in gpus
    )
    on_one = math.ceil(ranks / len(gpus))
    return Room((mebibytes << 20) // on_one, gpu=name, ranks=on_one, unified=unified)
