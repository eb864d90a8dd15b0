"""The batch of a step, and the learning rate that is advised for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.config import Settings, load_preset
from hearth.plan.batch import advised_rate, describe_batch, scaled_rate

PRESET = Settings(model="gpt2-124m", **load_preset("gpt2-124m").settings)
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
    assert_names(describe_batch(PRESET, rows, tokens), *facts)
