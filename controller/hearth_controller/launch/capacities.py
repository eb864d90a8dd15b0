"""The memory of the nodes' ranks, from what Ansible knows of the nodes."""

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
    """Return the room of a rank of each node that has answered, in the order of `names`.

    `known` are Ansible's variables by node; `answer` names the one that holds what `hearth_memory`
    found. Nodes of one computer share it.
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
