"""The batch of a step, and the learning rate that is advised for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.config import Settings, load_preset
from hearth.plan.steps import (
    FEW_STEPS,
    advised_rate,
    describe_automatic,
    describe_batch,
    rate_at,
    scaled_rate,
    warnings,
)

GPT2 = load_preset("gpt2-124m")
PRESET = Settings(model="gpt2-124m", **GPT2.settings | GPT2.with_shards)
RATES = st.floats(1e-6, 1, allow_nan=False)
BATCHES = st.integers(1, 1 << 24)


def changed(**given):
    return PRESET.model_copy(update=given)


@given(RATES, BATCHES, BATCHES, BATCHES)
def test_the_square_root_rule_is_the_same_in_one_step_and_in_two(rate, one, two, three):
    there = scaled_rate(scaled_rate(rate, one, two), two, three)
    assert there == pytest.approx(scaled_rate(rate, one, three))
    assert scaled_rate(rate, one, one) == rate
    assert (scaled_rate(rate, one, two) >= rate) == (two >= one) or one == two
    assert scaled_rate(rate, one, 4 * one) == pytest.approx(2 * rate)


@given(BATCHES.filter(lambda rows: rows != 512), st.sampled_from(["auto", "adamw", "adamw_8bit"]))
def test_another_batch_at_the_rate_of_the_preset_gets_advice(rows, optimizer):
    said = advised_rate(changed(global_batch=rows, optimizer=optimizer), PRESET)
    wanted = scaled_rate(6e-4, 512 * 1024, rows * 1024)
    assert_names(said, "0.0006", 524288, rows * 1024, f"{wanted:.2g}")


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"global_batch": 1024, "sequence_length": 512},
        {"global_batch": 64, "learning_rate": 2e-4},
        {"global_batch": 64, "sync_every": 16},
        {"global_batch": 64, "lora": True, "scratch": False},
    ],
    ids=["as tuned", "as many tokens", "a rate of one's own", "local steps", "another training"],
)
def test_what_is_as_tuned_or_cannot_be_compared_gets_no_advice(given):
    assert advised_rate(changed(**given), PRESET) is None


@pytest.mark.parametrize(
    ("rows", "tokens", "facts"),
    [
        (4096, 4096 * 1024, ["512 rows", "524288 tokens"]),
        (1000, 900_000, ["512 rows", "about 460800 tokens"]),
        (3, 2048, ["3 rows", "about 2048 tokens"]),
    ],
    ids=["full rows", "some padding", "fewer rows than a step takes"],
)
def test_the_batch_is_told_in_rows_and_tokens(rows, tokens, facts):
    settings = changed(epochs=2)
    assert_names(describe_batch(settings, rows, tokens, 12), *facts, "2 epochs", "12 steps")
    assert "epoch" not in describe_batch(changed(epochs=2, max_steps=12), rows, tokens, 12)


@pytest.mark.parametrize(("steps", "warmup"), [(1, 1), (30, 30), (30, 5), (3, 0)])
def test_the_warm_up_is_told_as_long_as_it_is(steps, warmup):
    said = describe_batch(changed(epochs=1, warmup_steps=warmup), 10, 1000, steps)
    assert_names(said, f"warm-up {warmup}" if warmup else "no warm-up")


@given(st.integers(1, 100), st.integers(1, 1000), st.integers(1, 64), st.integers(0, 1000))
def test_a_run_that_learns_little_is_warned_of_with_the_setting_to_change(
    steps, rows, batch, warmup
):
    settings = changed(global_batch=batch, warmup_steps=warmup, epochs=1)
    said = "\n".join(warnings(settings, rows, steps))
    assert (f"{steps} step" in said and "epochs=" in said) == (steps < FEW_STEPS)
    assert ("warmup_steps=" in said) == (2 * warmup > steps)
    rates = [rate_at(step, steps, settings) for step in range(steps)]
    assert max(rates) >= 0.5 or "warmup_steps=" in said
    if steps < FEW_STEPS:
        assert ("global_batch=" in said) == (min(batch, rows) > 1)


def test_a_typed_number_of_steps_is_the_setting_to_change():
    (said,) = warnings(changed(max_steps=5, epochs=1, warmup_steps=0), 1000, 5)
    assert_names(said, "5 steps", "max_steps", "--max-steps")
    assert "epochs=" not in said
    assert not warnings(changed(max_steps=20, epochs=1, warmup_steps=2), 1000, 20)


def test_values_that_were_auto_are_named_with_the_data_they_are_for():
    settings = changed(epochs=3, packing=False)
    said = describe_automatic(settings, ["epochs", "packing"], "270 examples")
    assert_names(said, "epochs=3", "packing=off", "270 examples")
    assert describe_automatic(settings, [], "270 examples") is None
    unused = settings.model_copy(update={"max_steps": 7})
    assert "epochs" not in describe_automatic(unused, ["epochs", "packing"], "270 examples")


@pytest.mark.parametrize("automatic", ["global_batch", "sequence_length"])
def test_a_preset_that_is_tuned_for_no_batch_gives_no_advice(automatic):
    tuned = changed(**{automatic: "auto"})
    assert advised_rate(changed(global_batch=8), tuned) is None
