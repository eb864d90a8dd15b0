"""The memory of the nodes' ranks, extracted from Ansible's host variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.fit.capacity import Room, room_of


def rooms_of(
    names: Sequence[str],
    known: Mapping[str, Mapping[str, Any]],
    answer: str,
    memory_limit: float | None = None,
) -> dict[str, Room]:
    """Return the memory for a rank of each node that answered, in the order of `names`.

    `known` are Ansible's variables by node; `answer` names the one with the result of
    `hearth_memory`. Nodes on one computer share its memory.
    """
    rooms = {}
    for name in names:
        variables = known[name]
        facts = variables.get(answer, {}).get("facts")
        shared = str(variables.get("hearth_one_computer", False)).lower() in ("true", "yes", "1")
        if facts:
            nproc = int(variables.get("hearth_nproc", 0))
            rooms[name] = room_of(facts, nproc, len(names) if shared else 1, memory_limit)
    return rooms
