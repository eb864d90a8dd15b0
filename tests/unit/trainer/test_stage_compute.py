"""A stage of a pipeline: all stages agree on what fits, and on rows that are not finite."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.facts import assert_names, refuses
from support.toy_pipeline import Layers, ToyRows, Wires, together

from hearth.base.errors import HearthError
from hearth.plan.placement import Placement
from hearth.trainer.objective import StepCounts
from hearth.trainer.pipeline import StagePasses
from hearth.trainer.stage_compute import StageCompute

CUT = (3, 2, 1)
ROWS = np.arange(11)


def computed(act, most=11, holds=(99, 99, 99), lengths=(4,) * 11, order=(0, 1, 2)):
    """Return the stages, and the results of `act`, called with each rank's compute."""
    placement, wires = Placement.of(order, CUT), Wires(3)
    stages = {
        stage.rank: Layers(stage.layers, place == 0, place == 2, holds=holds[place])
        for place, stage in enumerate(placement.stages)
    }

    def run(rank):
        layers, world = stages[rank], wires.world(rank)
        passes = StagePasses(layers, placement, world, nullcontext, lambda loss: loss)
        compute = StageCompute(layers, ToyRows(lengths), passes, placement, world, layers.zero_grad)
        return act(compute, most)

    return [stages[rank] for rank in order], together(3, run)


def gradients(compute, most):
    return compute.gradients(ROWS, most, StepCounts(7), seed_of=lambda _: 0, say=print)


def grads(stages):
    return [each.grad for stage in stages for each in stage.own.parameters()]


@pytest.mark.parametrize("short", [0, 1, 2])
def test_if_one_stage_lacks_memory_all_take_fewer_rows_at_once(short, capfd):
    careful, expected = computed(gradients, most=2)
    holds = [99, 99, 99]
    holds[short] = 2
    bold, found = computed(gradients, most=11, holds=holds)
    assert [each.micro_batch for each in found] == [2, 2, 2]
    assert all(torch.equal(a, b) for a, b in zip(grads(bold), grads(careful), strict=True))
    assert [each.loss for each in found] == [each.loss for each in expected]
    said = capfd.readouterr().out.splitlines()
    for line, facts in zip(said, (("11 rows", "with 5"), ("4 rows", "with 2")), strict=True):
        assert_names(line, f"stage {short + 1} of 3", f"node{short}", *facts)


def test_a_row_that_one_stage_cannot_hold_ends_all_with_one_message():
    _, found = computed(gradients, holds=(99, 0, 99), order=(2, 0, 1))
    assert all(isinstance(each, HearthError) for each in found)
    assert len({str(each) for each in found}) == 1
    assert_names(str(found[0]), "stage 2 of 3", "rank 0", "node0", "4 tokens", "load_in_4bit=on")


@pytest.mark.parametrize(
    ("most", "facts"), [(11, ["11 rows", "micro_batch"]), (1, ["one row of 4 tokens"])]
)
def test_what_arrives_and_finds_no_memory_is_told_with_its_rows(most, facts):
    def full(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] not enough memory")

    placement, world = Placement.of((0, 1, 2), CUT), Wires(3).world(1)
    layers = Layers(range(3, 5), False, False)
    passes = SimpleNamespace(train=full)
    compute = StageCompute(layers, ToyRows((4,) * 11), passes, placement, world, layers.zero_grad)
    with refuses(HearthError, "stage 2 of 3", "node1", *facts):
        gradients(compute, most)


def test_a_stage_waits_until_the_passes_of_all_are_over():
    def act(compute, most):
        if compute._world.rank == 0:
            # The last backward pass of a step is the first stage's.
            train = compute._passes.train

            def slow(*given):
                passed = train(*given)
                time.sleep(0.5)
                return replace(passed, seconds=passed.seconds + 0.5)

            compute._passes.train = slow
        return gradients(compute, most)

    _, found = computed(act)
    assert found[0].seconds >= 0.5
    assert all(each.waited >= 0.4 for each in found[1:])


def test_the_parts_of_the_tokens_and_of_the_squared_norm_add_up():
    stages, found = computed(gradients, most=3)
    assert sum(each.tokens for each in found) == 44
    assert found[0].tokens > found[1].tokens > found[2].tokens
    norm = torch.nn.utils.get_total_norm(grads(stages)).item()
    assert sum(each.squares for each in found) == pytest.approx(norm**2)


def test_a_row_that_is_not_finite_is_found_by_all_and_told_by_one():
    def act(compute, _):
        layers = compute._model
        if layers.first:
            bad = compute._rows.batch([1]).input_ids
            with torch.no_grad():
                layers.embed.weight[bad] = torch.nan
        return compute.not_finite(np.array([0, 1, 3]), StepCounts(7))

    _, found = computed(act, lengths=(1,) * 11)
    assert found == [[1], [], []]


def test_an_evaluation_sums_the_loss_of_all_rows_on_the_last_stage():
    def act(compute, most):
        return compute.evaluate(ToyRows([4] * 11), ROWS, most, StepCounts(1), print)

    _, one = computed(act, most=11)
    _, pieces = computed(act, most=8, holds=(99, 99, 3))
    assert one[:2] == pieces[:2] == [[0], [0]]
    assert pieces[2] == pytest.approx(one[2])
