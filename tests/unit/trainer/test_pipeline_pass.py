"""A pass through stages: the gradients of one model, in any order of events, and without memory."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toy_pipeline import Layers, ToyRows, Wires, together

from hearth.plan.placement import Placement
from hearth.trainer.pipeline import MicroBatch, StagePasses


def micro_batches(shapes):
    """Return micro-batches of these rows, each of `length` tokens."""
    rows = ToyRows([length for count, length in shapes for _ in range(count)])
    ends = np.cumsum([count for count, _ in shapes])
    numbers = np.split(np.arange(ends[-1]), ends[:-1])
    return [MicroBatch(rows, each, [int(each[0])]) for each in numbers]


def passed(
    counts, shapes, train=True, order=None, failing=None, fails_at=None, pauses=None, wires=None
):
    """Pass micro-batches through stages of these layers each; return stages and results."""
    placement = Placement.of(order or range(len(counts)), counts)
    wires, last = wires or Wires(len(counts)), len(counts) - 1
    stages = [
        Layers(
            stage.layers,
            position == 0,
            position == last,
            pauses[position] if pauses else (0.0,),
            fails_at if position == failing else None,
        )
        for position, stage in enumerate(placement.stages)
    ]

    def run(position):
        world = wires.world(placement.ranks[position])
        passes = StagePasses(stages[position], placement, world, nullcontext, lambda loss: loss)
        batches = micro_batches(shapes)
        return passes.train(batches, 7) if train else passes.evaluate(batches)

    return stages, together(len(counts), run)


def gradients(stages):
    return [each.grad for stage in stages for each in stage.own.parameters()]


SHAPES = [(2, 3), (1, 5), (2, 1), (1, 1), (3, 2)]
PAUSES = st.lists(st.sampled_from([0.0, 0.001, 0.004]), min_size=1, max_size=4)


@settings(max_examples=15, deadline=None)
@given(
    cut=st.sampled_from([(4, 2), (2, 4), (3, 2, 1), (1, 4, 1), (2, 1, 1, 2)]),
    count=st.integers(1, 5),
    pauses=st.lists(PAUSES, min_size=4, max_size=4),
    backwards=st.booleans(),
)
def test_any_stages_give_the_gradients_of_one(cut, count, pauses, backwards):
    (whole,), (alone,) = passed((6,), SHAPES[:count])
    order = range(len(cut))[::-1] if backwards else range(len(cut))
    stages, results = passed(cut, SHAPES[:count], order=list(order), pauses=pauses)
    assert sum(each.loss for each in results) == pytest.approx(alone.loss, rel=1e-12)
    for found, expected in zip(gradients(stages), gradients([whole]), strict=True):
        assert torch.equal(found, expected)  # added in the same order, so bit for bit


def test_an_evaluation_goes_forward_only():
    (_,), (alone,) = passed((6,), SHAPES, train=False)
    stages, results = passed((3, 2, 1), SHAPES, train=False)
    assert [each.loss for each in results] == [0, 0, pytest.approx(alone.loss)]
    assert set(gradients(stages)) == {None}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("slow", [0, 1, 2])
def test_what_was_sent_is_kept_no_longer_than_it_may_be_under_way(train, slow):
    wires = Wires(3)
    pauses = [(0.004 * (position == slow),) for position in range(3)]
    passed((2, 2, 2), [(1, 2)] * 16, train=train, pauses=pauses, wires=wires)
    first, middle, last = (2 * (3 - position) - 1 for position in range(3))
    if train:
        # Of what a stage has under way, and of the two more that only the stage before has.
        assert wires.kept[0] <= first
        assert wires.kept[1] <= middle + 2 and wires.kept[2] <= last + 2
    else:
        assert wires.kept[0] <= first + 1 and wires.kept[1] <= middle + 1


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("fails_at", [1, 3, 5])
def test_a_stage_without_memory_lets_the_others_come_to_the_end(failing, fails_at):
    _, results = passed((3, 2, 1), SHAPES, failing=failing, fails_at=fails_at)
    assert [each.fitted for each in results] == [each != failing for each in range(3)]


def test_a_gradient_for_which_there_is_no_memory_lets_all_come_to_the_end(monkeypatch):
    failed, to = [], torch.Tensor.to

    def full_once(tensor, target, *more):
        if isinstance(target, torch.Tensor) and not failed:
            failed.append(target)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return to(tensor, target, *more)

    monkeypatch.setattr(torch.Tensor, "to", full_once)  # a CPU has nothing to copy
    _, results = passed((3, 2, 1), SHAPES)
    assert sorted(each.fitted for each in results) == [False, True, True]


def test_a_lost_stage_ends_the_pass_of_its_neighbours():
    placement, wires = Placement.of((0, 1), (3, 3)), Wires(2)
    wires.queue(1, 0).put(RuntimeError("Connection closed by peer"))
    layers = Layers(range(3), True, False)
    pipeline = StagePasses(layers, placement, wires.world(0), nullcontext, lambda loss: loss)
    with pytest.raises(RuntimeError, match="closed by peer"):
        pipeline.train(micro_batches(SHAPES), 7)
