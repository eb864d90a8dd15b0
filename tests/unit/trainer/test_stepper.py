"""A rank's report of its step; compute, optimizer and exchange are stand-ins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from hearth.plan.planner import Fixed
from hearth.plan.row_order import RowOrder
from hearth.ranks.energy import Meter
from hearth.ranks.world import World
from hearth.trainer.compute import Computed
from hearth.trainer.stepper import Stepper
from hearth.trainer.work import Work

COMPUTED, UPDATED, WAITED = 10.0, 0.01, 0.2
"""Seconds; the later ones really pass."""


def exchange(heard: list[float]) -> SimpleNamespace:
    """Return an exchange of one rank with itself, and the end of its rounds; both note seconds."""

    def reported(seconds: float) -> SimpleNamespace:
        heard.append(seconds)
        shared = {"micro_batch": [1], "tokens": [2], "skipped": [0], "labels": [1], "norm": [1]}
        return SimpleNamespace(**shared, compute_seconds=[seconds])

    return SimpleNamespace(
        waited=0.0,
        run=lambda flags, compute_seconds, **others: reported(compute_seconds),
        begin=lambda: None,
        propose=lambda local, flags, **others: reported(local.seconds),
        commit=lambda local, summed: None,
    )


def stepper(heard: list[float], sync_every: int) -> Stepper:
    """Return a stepper of one rank with steps of two rows."""
    world = World()
    rows = SimpleNamespace(tokens=np.ones(8, int), label_tokens=np.ones(8, int))
    exchanged = exchange(heard)

    def slow_update(rows: Sequence[int], squares: None = None) -> float:
        """Take UPDATED seconds, and WAITED more for another rank's part of the update."""
        assert sum(rows) == 2
        time.sleep(UPDATED)
        started = time.perf_counter()
        time.sleep(WAITED)
        exchanged.waited += time.perf_counter() - started
        return 1.0

    return Stepper(
        SimpleNamespace(sync_every=sync_every, seed=0, packing=True),
        rows,
        RowOrder(rows=8, global_batch=2, seed=0),
        world,
        Fixed((1,), [1]),
        SimpleNamespace(gradients=lambda *a, **k: Computed(1.0, COMPUTED, 1, 2)),
        exchanged,
        SimpleNamespace(
            rate=1e-3,
            propose=slow_update,
            commit=lambda: time.sleep(UPDATED),
            advance_schedule=lambda: None,
            mark=lambda: None,
        ),
        lambda: {"stop": False, "keep": False, "pause": False},
        lambda *plans: None,
        exchanged if sync_every > 1 else None,
        Work(world),
        Meter(),
    )


def test_the_others_hear_how_long_a_ranks_optimizer_took_in_the_step_before():
    steps = stepper(heard := [], sync_every=1)
    steps.take(0, 2)
    steps.take(1, 1)
    first, second = heard
    assert first == COMPUTED  # no step was before it
    assert COMPUTED + 2 * UPDATED <= second < COMPUTED + WAITED


def test_the_others_hear_how_long_it_took_in_all_steps_of_a_round():
    stepper(heard := [], sync_every=3).take(0, 3)
    assert heard[0] >= 3 * (COMPUTED + 2 * UPDATED)
