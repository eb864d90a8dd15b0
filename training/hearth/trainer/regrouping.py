"""From one group to the next: a rank leaves, waits for orders, and forms the group it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from hearth.ranks.control_protocol import Form, Formed, Leave, Waiting
from hearth.ranks.world import GroupBroken, World


@dataclass(frozen=True)
class Parting:
    """The way in which a rank left its group.

    Attributes:
        why: "new" (it was in none), "paused" or "broken".
        message: for "broken" why, by the supervisor or by the error that the rank saw.
        generation: of the group.
        nodes: of the group.
        at: when, in seconds of `time.monotonic`; if it waited for others by then, since when.
        reasons: why nodes are not in the next group, by node.
    """

    why: str
    message: str
    generation: int
    nodes: tuple[str, ...]
    at: float
    reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def waited(self) -> float:
        """Seconds since then."""
        return round(time.monotonic() - self.at, 3)

    def left(self, nodes: tuple[str, ...]) -> dict[str, str]:
        """Return which nodes of the group are not in the next one of `nodes`, and why."""
        why = self.message or "it left in order"
        gone = (node for node in self.nodes if node not in nodes)
        return {node: self.reasons.get(node, why) for node in gone}

    def joined(self, nodes: tuple[str, ...]) -> list[str]:
        """Return which of the next group's `nodes` were not in this one."""
        return [node for node in nodes if node not in self.nodes]


def nodes_of(world: World) -> tuple[str, ...]:
    """Return the nodes of the group, in rank order."""
    return tuple(dict.fromkeys(world.layout[rank] for rank in world.members))


def next_group(
    world: World,
    parting: Parting,
    step: Callable[[], int],
    choices: dict[str, str],
    settle: Callable[[Parting], None],
    rest: Callable[[], None],
) -> Leave | None:
    """Leave the group, and form groups as the supervisor says until one of them has settled.

    `step` returns the steps done, `settle` brings the members of a new group to the same state, and
    `rest` is called before each wait for the supervisor. Returns the order to leave instead, if
    that comes.
    """
    control = world.control
    assert control is not None
    why, message = parting.why, parting.message
    while True:
        world.drop()
        rest()
        order = control.wait(Waiting(why, world.generation, step(), loaded=True, message=message))
        if isinstance(order, Leave):
            return order
        if not isinstance(order, Form):
            continue  # an order to load, which this rank has done
        if parting.why == "broken":  # the supervisor knows more than that a connection broke
            known = control.reasons.get(parting.generation) or parting.message
            parting = replace(parting, message=known)
        parting = replace(parting, reasons=order.left)
        try:
            world.form(order)
            settle(parting)
        except GroupBroken as broken:
            why, message = "broken", str(broken)
            continue
        control.tell(Formed(order.generation, step(), choices))
        return None
