"""A rank between two groups."""

from __future__ import annotations

from types import SimpleNamespace

from support.several import on_ranks

from hearth.ranks.alarm import GroupBroken
from hearth.ranks.control_protocol import Form, Formed, Leave
from hearth.trainer.components import Choices
from hearth.trainer.in_place import InPlaceTrainer, Parting
from hearth.trainer.progress import Progress, Standing

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


def test_a_rank_that_is_behind_gets_the_training_of_the_furthest_and_the_others_keep_theirs():
    ahead = (True, False, True)
    standings = [
        Standing(rank, True, "first", 1, 8 if is_ahead else 5, 8 if is_ahead else 5, None)
        for rank, is_ahead in enumerate(ahead)
    ]

    def rank(world):
        world.control = SimpleNamespace()
        own, taken = standings[world.rank], {}
        trainer = SimpleNamespace(
            world=world,
            work=SimpleNamespace(begin=lambda *_: None, wait=lambda: None),
            learning=SimpleNamespace(
                state=SimpleNamespace(
                    get=lambda: {"momentum": 0.5}, set=lambda state: taken.update(training=state)
                )
            ),
            progress=Progress(launch="first", generation=1, step=own.step),
            evaluator=SimpleNamespace(best=None, since_best=world.rank),
            checkpointer=SimpleNamespace(newest_step=8),
            telemetry=SimpleNamespace(
                text=lambda: "record", take_over=lambda text: taken.update(record=text)
            ),
            stream_position=lambda: None,
            facts=SimpleNamespace(rows=None),
        )
        InPlaceTrainer(trainer, None)._take_over(own, standings[0], standings)
        return taken, trainer.progress.step, trainer.evaluator.since_best

    of_the_furthest = ({"training": {"momentum": 0.5}, "record": "record"}, 8, 0)
    assert on_ranks(3, rank) == [({}, 8, 0), of_the_furthest, ({}, 8, 2)]
