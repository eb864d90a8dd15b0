"""Ranks that do nothing but sum in each group until that ends, for tests of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hearth.ranks.control_protocol import Form, Formed, Waiting
from support.conductor import Conductor, Said

# What a rank tells of a group is its first sum.
RANK = """
import os, sys
from hearth.ranks.control import take_ranks_in_place
take_ranks_in_place()
import torch
from hearth.ranks.control_protocol import Form, Formed, Leave, Waiting
from hearth.ranks.world import GroupBroken, join, leave

torch.set_num_threads(1)
size = int(sys.argv[1])
world = join()
control = world.control
assert world.members == (world.rank,)
step, waiting = 0, Waiting("new", 0, 0, loaded=True)

def total(length):
    buffer = torch.full((length,), 10.0 ** world.rank, device=world.gradient_device)
    world.sum_(buffer)
    assert torch.equal(buffer, buffer[:1].expand_as(buffer))
    return buffer[0].item()

while isinstance(order := control.wait(waiting), Form):
    waiting = None
    try:
        world.form(order)
        told = {
            "sum": total(1),
            "carrier": world.carrier,
            "nodes": world.gather(world.node),
            "members": world.members,
            "leader": world.from_leader(world.rank),
            "last": world.from_rank(world.members[-1], world.rank),
            "open": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
        }
        control.tell(Formed(order.generation, step, told))
        while True:
            pauses = world.gather(control.paused)
            if any(pauses):
                world.drop()
                waiting = Waiting("paused", order.generation, step, True)
                break
            total(size)
            step += 1
            world.check()
    except GroupBroken as broken:
        world.drop()
        assert world.members == (world.rank,) and world.alone and world.leads
        waiting = Waiting("broken", order.generation, step, True, str(broken))
assert isinstance(order, Leave)
leave(world)
control.end("stopped", step)
"""

SMALL, LARGE = 10, 8_000_000
"""Numbers in a sum: one that is over at once, and one that is always under way."""


@contextmanager
def conducted(folder: Path, **environment: str) -> Iterator[Callable[..., Conductor]]:
    """Have a function that starts the ranks of a layout, which sum `size` numbers.

    `prelude` is run by each of them first. In the end they are ended, and their logs printed.
    """
    made: list[Conductor] = []

    def start(layout: dict[str, int], size: int = SMALL, prelude: str = "") -> Conductor:
        made.append(Conductor(folder, layout, prelude + RANK, size, **environment))
        made[-1].start()
        waiting(made[-1], "new", 0)
        return made[-1]

    yield start
    for each in made:
        each.close()
        for rank in each.ranks():
            print(f"--- rank {rank}: {each.log(rank)}")


def formed(conductor: Conductor, order: Form, *ranks: int, **bound: float) -> list[dict[str, Any]]:
    """Wait until these ranks, or all, have formed the group of an order; return their messages."""
    found = conductor.hear(
        Formed, *ranks, where=lambda told: told.generation == order.generation, **bound
    )
    return [said.message.choices for said in found]


def waiting(
    conductor: Conductor, why: str, generation: int, *ranks: int, **more: float
) -> list[Said]:
    """Wait until these ranks, or all, wait for this reason after the group of a generation."""
    return conductor.hear(
        Waiting,
        *ranks,
        where=lambda told: (told.why, told.generation) == (why, generation),
        **more,
    )
