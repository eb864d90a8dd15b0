"""A rank's report of its step; compute, optimizer and exchange are stand-ins."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from hearth.plan.planner import Fixed
from hearth.plan.row_order import RowOrder
from hearth.trainer.compute import Computed
from hearth.trainer.stepper import Stepper

COMPUTED, UPDATED = 10.0, 0.02
"""Seconds; the second ones really pass."""


class Learner:
    rate, may_lower_scale = 1e-3, False

    def update(self) -> float:
        time.sleep(UPDATED)
        return 1.0

    def advance_schedule(self) -> None:
        """Nothing changes it here."""


class Exchanged:
    """An exchange of one rank with itself, and the end of its rounds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def run(
        self, flags: dict[str, bool], compute_seconds: float, **others: object
    ) -> SimpleNamespace:
        return self._reported(compute_seconds)

    def begin(self) -> None:
        """A round leaves nothing to note here."""

    def end(
        self, local: SimpleNamespace, flags: dict[str, bool], **others: object
    ) -> SimpleNamespace:
        return self._reported(local.seconds)

    def _reported(self, seconds: float) -> SimpleNamespace:
        self.seconds.append(seconds)
        return SimpleNamespace(
            micro_batch=[1],
            tokens=[2],
            compute_seconds=[seconds],
            skipped=[0],
            labels=[1],
            norm=[1],
        )


@pytest.fixture
def exchanged() -> Exchanged:
    return Exchanged()


def stepper(exchanged: Exchanged, sync_every: int) -> Stepper:
    """Return a stepper of one rank with steps of two rows."""
    rows = SimpleNamespace(tokens=np.ones(8, int), label_tokens=np.ones(8, int))
    return Stepper(
        SimpleNamespace(sync_every=sync_every, seed=0, packing=True),
        rows,
        RowOrder(rows=8, global_batch=2, seed=0),
        SimpleNamespace(rank=0, device=SimpleNamespace(type="cpu"), say=print),
        Fixed((1,), [1]),
        SimpleNamespace(gradients=lambda *a, **k: Computed(1.0, COMPUTED, 1)),
        exchanged,
        Learner(),
        lambda: {"stop": False, "keep": False},
        lambda *plans: None,
        exchanged if sync_every > 1 else None,
    )


def test_the_others_hear_how_long_a_ranks_optimizer_took_in_the_step_before(exchanged):
    steps = stepper(exchanged, sync_every=1)
    steps.take(0, 2)
    steps.take(1, 1)
    first, second = exchanged.seconds
    assert first == COMPUTED  # no step was before it
    assert second >= COMPUTED + UPDATED


def test_the_others_hear_how_long_it_took_in_all_steps_of_a_round(exchanged):
    stepper(exchanged, sync_every=3).take(0, 3)
    assert exchanged.seconds[0] >= 3 * (COMPUTED + UPDATED)
