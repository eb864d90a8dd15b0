"""Memory available to a rank: its share of a GPU, or of the computer's free memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hearth.base.nvidia import ranks_of, unified_share

GIB = 1 << 30

_BF16 = 8
"""Least major compute capability of a GPU that computes in bf16."""


@dataclass(frozen=True)
class Room:
    """The memory of one rank, in bytes.

    Attributes:
        gpu: name of the card; '' for a rank on a CPU.
        unified: whether the card has no memory of its own, but shares the computer's.
        ranks: number of ranks that share the card or the computer.
        held: bytes of the card that the driver and other programs hold.
        programs: name and bytes of those programs, as far as they are known.
        limited: whether `memory_limit` caps the memory of a rank on a CPU.
        bf16: whether the rank can compute in bf16; GPUs that cannot have fp16 instead.
    """

    size: int
    gpu: str = ""
    ranks: int = 1
    unified: bool = False
    held: int = 0
    programs: tuple[tuple[str, int], ...] = ()
    limited: bool = False
    bf16: bool = True

    def computes_in(self, precision: str) -> bool:
        """Return whether the rank can compute in a precision, as `hearth.model.precision` says."""
        return precision != "bf16" or self.bf16 if self.gpu else precision != "fp16"

    @property
    def description(self) -> str:
        """Description of the available memory, as a clause that follows "and"."""
        size = f"{self.size / GIB:.1f} GiB"
        if self.limited:
            return f"memory_limit gives it {size}"
        shared = f" for each of {self.ranks} ranks" if self.ranks > 1 else ""
        if self.gpu:
            has = "shares memory with the CPU, of which it has" if self.unified else "has"
            held = f" beside the {self.held / GIB:.1f} that others hold" if self.held else ""
            named = f" ({self.others})" if self.programs else ""
            return f"{self.gpu} {has} {size}{shared}{held}{named}"
        return f"{size} of memory are free{shared}"

    @property
    def others(self) -> str:
        """The other programs on the card with the memory of each, the largest first."""
        largest = sorted(self.programs, key=lambda program: -program[1])[:3]
        return ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in largest)

    @property
    def freed(self) -> int:
        """The rank's bytes once the other programs on its card have ended."""
        return self.size + sum(size for _, size in self.programs) // self.ranks


def rooms_of_ranks(
    facts: Mapping[str, Any], nproc: int, nodes_here: int = 1, memory_limit: float | None = None
) -> list[Room]:
    """Return the room of each of the `nproc` ranks of a node; 0 means one per GPU, at least one.

    A rank is on the card of its local rank; where there are fewer, ranks share them. Of more cards
    than ranks the smallest counts: CUDA_VISIBLE_DEVICES says which are used. `facts` are
    `cuda` (whether its torch can use NVIDIA GPUs), `gpus` (`name`, `capability` and `memory_mib` of
    each, which is None where it shares the computer's memory, and if known its `room_mib` and the
    other `programs` on it, name and MiB) and
    `free_mib` of the computer, which `nodes_here` nodes share.
    """
    gpus = facts["gpus"] if facts["cuda"] else []
    count = ranks_of(facts, nproc)
    if not gpus:
        ranks = nodes_here * count
        if memory_limit:
            return count * [Room(round(memory_limit * GIB), limited=True)]
        return count * [Room((facts["free_mib"] << 20) // ranks, ranks=ranks)]
    rooms = []
    for number, gpu in enumerate(gpus):
        sharing = nodes_here * max(1, len(range(number, count, len(gpus))))
        rooms.append(_on_card(gpu, sharing, facts["free_mib"]))
    if count < len(gpus):
        return count * [least(rooms)]
    return [rooms[rank % len(gpus)] for rank in range(count)]


def _on_card(gpu: Mapping[str, Any], ranks: int, free_mib: int) -> Room:
    """Return each rank's room on a card of `ranks` ranks; `free_mib` is the host's free memory."""
    bf16 = _has_bf16(gpu)
    if not gpu["memory_mib"]:
        share = round(unified_share(free_mib << 20, ranks))
        return Room(share, gpu["name"], ranks, unified=True, bf16=bf16)
    room = gpu.get("room_mib", gpu["memory_mib"])
    held = (gpu["memory_mib"] - room) << 20
    programs = tuple((name, mib << 20) for name, mib in gpu.get("programs", ()))
    return Room((room << 20) // ranks, gpu["name"], ranks, held=held, programs=programs, bf16=bf16)


def least(rooms: Iterable[Room]) -> Room:
    """Return the smallest of `rooms`, in bf16 only if all of them have that.

    Each of them has at least this room.
    """
    rooms = list(rooms)
    return replace(min(rooms, key=lambda room: room.size), bf16=all(room.bf16 for room in rooms))


def _has_bf16(gpu: Mapping[str, Any]) -> bool:
    """Return whether a GPU computes in bf16; one of unknown capability counts as an old one."""
    major = str(gpu.get("capability", "")).partition(".")[0]
    return major.isdecimal() and int(major) >= _BF16


def automatic_precision(rooms: Iterable[Room]) -> str:
    """Return the precision that ranks with these rooms take for `auto`.

    As they choose it (`hearth.model.precision`): processors have fp32 and bf16, GPUs bf16 from
    compute capability 8 on, older ones fp16, and all have fp32.
    """
    rooms = list(rooms)
    gpus = [room for room in rooms if room.gpu]
    if gpus and all(room.bf16 for room in gpus):
        return "bf16"
    return "fp16" if gpus and len(gpus) == len(rooms) else "fp32"
