"""Does a run's model fit the nodes that were inspected? The verdict is that of `hearth.fit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.config import Settings
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, room_of
from hearth.fit.misfits import misfits, unknown


def rooms_of(
    looks: Mapping[str, Mapping[str, Any]], memory_limit: float | None = None
) -> dict[str, Room]:
    """Return the memory for a rank of each node that answered.

    `looks` are results of the module `hearth_look` by node. Nodes on one computer share its memory.
    """
    rooms = {}
    for name, look in looks.items():
        if facts := look.get("facts"):
            own = facts["own"]
            sharing = len(looks) if own["one_computer"] else 1
            rooms[name] = room_of(facts["memory"], own["nproc"], sharing, memory_limit)
    return rooms


def check_fit(
    run: Mapping[str, Any], looks: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the findings by node, and the lines to show, for the model of `run`.

    With `fit: warn` a misfit is a line. So is a model of unknown size, which is not judged.
    """
    shape = run["shape"] or next(
        (look["facts"]["shape"] for look in looks.values() if look.get("facts", {}).get("shape")),
        {},
    )
    if not shape:
        return {}, [unknown(run["model"])]
    settings = Settings.model_validate(run["settings"])
    rooms = rooms_of(looks, settings.memory_limit)
    found = misfits(run["model"], settings, Shape(**shape), rooms)
    if settings.fit == "warn":
        return {}, [f"{name}: WARNING: {finding}" for name, finding in found.items()]
    return {name: [finding] for name, finding in found.items()}, []
