"""A rank between two groups."""

from __future__ import annotations

from types import SimpleNamespace

from hearth.ranks.alarm import GroupBroken
from hearth.ranks.control_protocol import Form, Formed, Leave
from hearth.trainer.components import Choices
from hearth.trainer.in_place import InPlaceTrainer, Parting

PARTING = Parting("paused", "", 3, ("tower", "laptop"), 0.0)


def form(generation: int) -> Form:
    return Form(generation, ("tower", "laptop"), "127.0.0.1", 1, ("127.0.0.1",), False)


def regroup(orders, settle):
    """Let a rank follow these orders; return the end, and what happened meanwhile."""
    happened, orders = [], iter(orders)

    def wait(waiting):
        happened.append(waiting)
        return next(orders)

    control = SimpleNamespace(
        wait=wait, tell=happened.append, is_over=lambda generation: "laptop was lost"
    )
    world = SimpleNamespace(
        control=control,
        generation=3,
        drop=lambda: happened.append("in no group"),
        form=lambda order: setattr(world, "generation", order.generation),
    )

    trainer = SimpleNamespace(
        world=world,
        work=SimpleNamespace(abandon=lambda: happened.append("rests")),
        step=8,
        facts=SimpleNamespace(choices=Choices("fp32", "adamw")),
    )
    in_place = InPlaceTrainer(trainer, None)
    in_place._settle = settle
    return in_place._next_group(PARTING), happened


def test_a_rank_shows_no_work_while_it_waits_for_its_supervisor():
    broken = iter([True, False])

    def settle(parting):
        if next(broken):
            raise GroupBroken("tower closed its connection")

    end, happened = regroup([form(4), form(5)], settle)
    waits = [number for number, what in enumerate(happened) if hasattr(what, "loaded")]
    assert [happened[number - 1] for number in waits] == ["rests", "rests"]
    assert [(happened[n].why, happened[n].generation) for n in waits] == [
        ("paused", 3),
        ("broken", 4),
    ]
    assert (end, happened[-1]) == (None, Formed(5, 8, {"precision": "fp32", "optimizer": "adamw"}))


def test_a_rank_that_is_to_leave_forms_nothing():
    end, happened = regroup([Leave(True)], lambda parting: None)
    assert end == Leave(True)
    assert not any(isinstance(each, Formed) for each in happened)
