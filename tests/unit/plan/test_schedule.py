"""The learning rate of each step: above 0 from the first, and down again at the end."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import get_scheduler, get_wsd_schedule

from hearth.config import Settings
from hearth.plan.steps import rate_at, warmup_of

SCHEDULES = ["linear", "cosine", "constant", "constant_with_warmup", "wsd"]
FALLING = ["linear", "cosine", "wsd"]


def rates(schedule, steps, warmup, fraction=0.2):
    settings = Settings(
        model="tiny", schedule=schedule, warmup_steps=warmup, decay_fraction=fraction
    )
    return [rate_at(step, steps, settings) for step in range(steps)], settings


@given(st.sampled_from(SCHEDULES), st.integers(1, 300), st.integers(0, 400), st.floats(0.01, 1))
def test_no_step_is_taken_at_rate_0_and_none_above_the_peak(schedule, steps, warmup, fraction):
    found, settings = rates(schedule, steps, warmup, fraction)
    assert all(0 < rate <= 1 for rate in found)
    rising = warmup_of(steps, settings)
    assert all(rate < 1 for rate in found[:rising])
    if rising < steps:
        assert found[rising] == 1


@given(st.sampled_from(FALLING), st.integers(2, 300), st.integers(0, 50))
def test_after_the_warm_up_the_rate_never_rises_and_would_be_0_after_the_last_step(
    schedule, steps, warmup
):
    found, settings = rates(schedule, steps, warmup, 1.0)
    after = found[warmup:]
    assert after == sorted(after, reverse=True)
    if warmup < steps:
        assert rate_at(steps, steps, settings) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_apart_from_the_warm_up_it_is_the_schedule_of_transformers(schedule):
    steps, warmup = 40, 6
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 1.0)
    if schedule == "wsd":
        theirs = get_wsd_schedule(
            optimizer, num_warmup_steps=warmup, num_decay_steps=8, num_training_steps=steps,
            decay_type="1-sqrt",
        )  # fmt: skip
    else:
        theirs = get_scheduler(
            schedule, optimizer, num_warmup_steps=warmup, num_training_steps=steps
        )
    expected = [theirs.lr_lambdas[0](step) for step in range(steps)]
    found, _ = rates(schedule, steps, warmup)
    assert found[warmup:] == pytest.approx(expected[warmup:])
