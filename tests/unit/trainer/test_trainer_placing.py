"""The placement of a run: as planned, or by shares; all ranks refuse what cannot be placed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.facts import assert_line, refuses
from support.tiny_model import make_model

from hearth.base.errors import ConfigError, ModelError
from hearth.config import Settings
from hearth.config.run import PlannedPipeline
from hearth.fit.capacity import Room
from hearth.plan.placement import LayerSpeed, Placement
from hearth.plan.speed import Speed
from hearth.trainer.placing import check_all_learn, choose_placement

LAYERS = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"), num_hidden_layers=LAYERS)


@pytest.fixture
def chosen(model):
    """Return a function that places layers; it returns the stages, and the rows at once."""

    def choose(ranks, split="auto", planned=None, micro_batch=1, **more):
        layout = [f"node{rank}" for rank in range(ranks)]
        world = SimpleNamespace(
            size=ranks,
            layout=layout,
            node="node0",
            leads=True,
            gather=lambda own: [own | {"node": node} for node in layout],
            from_leader=lambda found: found,
        )
        settings = Settings(
            model="any", parallel="pipeline", split=split, micro_batch=micro_batch
        ).at_most()
        settings = settings.model_copy(update=more)
        pipeline = planned and PlannedPipeline(planned, 4, 1.0)
        run = SimpleNamespace(settings=settings, pipeline=pipeline)
        placement, rows = choose_placement(run, None, model, world)
        return [(stage.rank, len(stage.layers)) for stage in placement.stages], rows

    return choose


def test_layers_are_placed_as_planned_or_by_shares(chosen):
    as_planned = chosen(2, planned=((1, 4), (0, 1)), micro_batch="auto")
    assert as_planned == ([(1, 4), (0, 1)], 4)
    assert chosen(2, planned=((1, 4), (0, 1)), micro_batch=2) == ([(1, 4), (0, 1)], 2)
    assert chosen(3, split=(3, 1, 1)) == ([(0, 3), (1, 1), (2, 1)], 1)
    assert [count for _, count in chosen(2, split="equal")[0]] == [3, 2]


def test_typed_shares_are_refused_where_a_stage_has_no_room(chosen, monkeypatch, capsys):
    room = Room(1 << 20, limited=True)
    monkeypatch.setattr("hearth.trainer.placing.room_here", lambda _: room)
    with refuses(ModelError, "split", "node0", "3 layers", "GiB"):
        chosen(3, split=(3, 1, 1))
    assert chosen(3, split=(3, 1, 1), fit="warn") == ([(0, 3), (1, 1), (2, 1)], 1)
    assert_line(capsys.readouterr().out, "WARNING", "node0", "3 layers")


def test_with_typed_shares_an_automatic_micro_batch_is_the_fastest_that_was_timed(
    chosen, monkeypatch
):
    same = Speed((1, 2, 4), (1.0, 1.0, 1.0))
    timed = SimpleNamespace(speed=LayerSpeed(same, same, same))
    monkeypatch.setattr("hearth.trainer.placing.layers_here", lambda *_: timed)
    assert chosen(2, split=(3, 2), micro_batch="auto", global_batch=16)[1] == 4
    careless = chosen(2, split=(3, 2), micro_batch="auto", global_batch=16, fit="warn")
    assert careless[1] == 1


@pytest.mark.parametrize(
    ("how", "facts"),
    [
        ({"ranks": 1}, ["two ranks", "parallel=ddp"]),
        ({"ranks": 2, "split": (1, 0)}, ["rank 1", "node1", "5 layers"]),
        ({"ranks": 6, "split": "equal"}, ["rank 5", "node5", "5 layers"]),
        ({"ranks": 2, "split": (1, 1, 1)}, ["split", "3 shares", "2 ranks"]),
        ({"ranks": 2, "planned": ((0, 3), (2, 2))}, ["5 layers", "2", "resume"]),
        ({"ranks": 2, "planned": ((0, 3), (1, 1))}, ["4 layers", "has 5", "resume"]),
        ({"ranks": 3, "planned": ((0, 3), (2, 2))}, ["rank 1", "node1"]),
    ],
)
def test_what_cannot_be_placed_on_all_ranks_is_refused(chosen, how, facts):
    with refuses(ConfigError, *facts):
        chosen(**how)


def test_a_stage_without_anything_that_learns_is_refused_by_name_on_all_ranks():
    said = [True, False, True]
    world = SimpleNamespace(layout=["tower", "laptop", "oldbox"], gather=lambda _: said)
    settings = SimpleNamespace(lora_targets=("layers.3.self_attn.q_proj",))
    placement = Placement.of((1, 0, 2), (2, 2, 1))
    with refuses(ConfigError, "lora_targets", "q_proj", "laptop layers 1-2 of 5"):
        check_all_learn(placement, settings, world, learns=True)
    said[1] = True
    check_all_learn(placement, settings, world, learns=True)
