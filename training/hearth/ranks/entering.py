"""The first orders of a rank under a supervisor that forms groups in place."""

from __future__ import annotations

from typing import Any

from hearth.ranks.control_protocol import Form, Leave, Load, Waiting
from hearth.ranks.world import GroupBroken, World


def enter(world: World) -> dict[str, Any] | None:
    """Wait for the supervisor's orders until this rank is in a group or shall load alone.

    Returns the choices with which to load alone, None if all members of the group load together.

    Raises:
        SystemExit: the supervisor wants the rank to leave (status 0), or has died.
    """
    assert world.control is not None
    waiting = Waiting("new", 0, 0, loaded=False)
    while True:
        match world.control.wait(waiting):
            case Load(choices):
                return choices
            case Leave():
                raise SystemExit(0)
            case Form() as order:
                try:
                    world.form(order)
                except GroupBroken as broken:
                    waiting = Waiting("new", order.generation, 0, False, str(broken))
                else:
                    return None
