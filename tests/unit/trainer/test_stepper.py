"""A rank's report of its step; compute, optimizer and exchange are stand-ins."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest
from support.facts import assert_names

from hearth.base.errors import HearthError
from hearth.plan.planner import Fixed
from hearth.plan.row_order import RowOrder
from hearth.ranks.energy import Meter
from hearth.ranks.world import World
from hearth.record.own_disk import OwnDisk
from hearth.trainer.compute import Computed
from hearth.trainer.objective import NextToken
from hearth.trainer.stepper import Stepper
from hearth.trainer.work import Work

COMPUTED, UPDATED, WAITED = 10.0, 0.01, 0.2
"""Seconds; the later ones really pass."""


def exchange(heard: list[float], amiss: Mapping[str, int]) -> SimpleNamespace:
    """Return an exchange of one rank with itself, and the end of its rounds; both note seconds.

    Its sums are off by `amiss`.
    """

    def reported(seconds: float, **own: int) -> SimpleNamespace:
        heard.append(seconds)
        counts = {name: [count + amiss.get(name, 0)] for name, count in own.items()}
        shared = {"micro_batch": [1], "skipped": [0], "norm": [1]}
        shared["exchange_seconds"] = lambda members: 0.0
        return SimpleNamespace(**shared, **counts, compute_seconds=[seconds])

    return SimpleNamespace(
        waited=0.0,
        run=lambda flags, compute_seconds, tokens, labels, **others: reported(
            compute_seconds, tokens=tokens, labels=labels
        ),
        begin=lambda: None,
        propose=lambda local, flags, **others: reported(
            local.seconds, tokens=local.tokens, labels=local.labels
        ),
        commit=lambda local, summed: None,
    )


def stepper(
    heard: list[float], sync_every: int, amiss: Mapping[str, int] = MappingProxyType({})
) -> Stepper:
    """Return a stepper of one rank with steps of two rows."""
    world = World()
    rows = SimpleNamespace(tokens=np.ones(8, int), label_tokens=np.ones(8, int))
    exchanged = exchange(heard, amiss)

    def slow_update(rows: Sequence[int], squares: None = None) -> float:
        """Take UPDATED seconds, and WAITED more for another rank's part of the update."""
        assert sum(rows) == 2
        time.sleep(UPDATED)
        started = time.perf_counter()
        time.sleep(WAITED)
        exchanged.waited += time.perf_counter() - started
        return 1.0

    context = SimpleNamespace(
        settings=SimpleNamespace(sync_every=sync_every, seed=0, packing=True),
        world=world,
        work=Work(world),
        energy=Meter(),
        disk=OwnDisk(),
    )
    learner = SimpleNamespace(
        rate=1e-3,
        propose=slow_update,
        commit=lambda: time.sleep(UPDATED),
        advance_schedule=lambda: None,
        mark=lambda: None,
    )
    learning = SimpleNamespace(
        objective=NextToken(),
        compute=SimpleNamespace(gradients=lambda *a, **k: Computed(1.0, COMPUTED, 1, 2)),
        exchange=exchanged,
        learner=learner,
        rounds=exchanged if sync_every > 1 else None,
    )
    facts = SimpleNamespace(rows=rows, order=RowOrder(rows=8, global_batch=2, seed=0))
    return Stepper(context, facts, learning, Fixed((1,), [1]), lambda *plans: None)


def flags() -> dict[str, bool]:
    return {"stop": False, "keep": False, "pause": False}


def test_the_others_hear_how_long_a_ranks_optimizer_took_in_the_step_before():
    steps = stepper(heard := [], sync_every=1)
    steps.take(0, 2, flags)
    steps.take(1, 1, flags)
    first, second = heard
    assert first == COMPUTED  # no step was before it
    assert COMPUTED + 2 * UPDATED <= second < COMPUTED + WAITED


def test_the_others_hear_how_long_it_took_in_all_steps_of_a_round():
    stepper(heard := [], sync_every=3).take(0, 3, flags)
    assert heard[0] >= 3 * (COMPUTED + 2 * UPDATED)


@pytest.mark.parametrize(("every", "what"), [(1, "tokens"), (1, "labels"), (2, "labels")])
@pytest.mark.parametrize("more", [1, -1, 1000])
def test_a_sum_of_tokens_that_is_not_the_plans_is_an_error_before_anything_is_learned(
    every, what, more
):
    steps = stepper([], every, {what: more})
    with pytest.raises(HearthError) as refused:
        steps.take(2, 2, flags)
    assert_names(str(refused.value), f"step {2 + every}", f"{2 * every + more} ", f"{2 * every}:")


def test_an_exchange_may_round_large_sums_of_tokens():
    stepper([], 1, {"tokens": 0})._check(0, "tokens", [16_777_216 * 8], 16_777_216 * 8 + 3)
