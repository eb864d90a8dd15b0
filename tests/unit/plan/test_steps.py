"""The steps of a run: their size and number, their rates, and warnings about them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.lengths import SHIPPED, chats, of_preset, settled, short_chats, texts
from support.shards import write_shard
from transformers import get_scheduler, get_wsd_schedule

from hearth.config import Settings, load_preset, preset_names, resolve
from hearth.plan.steps import (
    FEW_STEPS,
    advised_rate,
    describe_automatic,
    describe_batch,
    rate_at,
    scaled_rate,
    settle_rows,
    settle_warmup,
    warmup_of,
    warnings,
)

SCHEDULES = ["linear", "cosine", "constant", "constant_with_warmup", "wsd"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("lengths", "most"),
    [
        (SHIPPED, 400),
        (short_chats(100), 400),
        (short_chats(1000), 400),
        (short_chats(20_000), 1000),
        ([*short_chats(100), 1000], 400),
        ([*short_chats(1000), 1000], 400),
    ],
    ids=["shipped", "100", "1000", "20000", "100 and a long one", "1000 and a long one"],
)
@pytest.mark.parametrize("preset", preset_names())
def test_a_first_run_learns_in_enough_steps(preset, lengths, most, schedule):
    settings = of_preset(preset).model_copy(update={"schedule": schedule})
    settings, steps, _ = settled(settings, chats(lengths))
    assert 50 <= steps <= most
    assert settings.warmup_steps <= steps / 10
    rates = [rate_at(step, steps, settings) for step in range(steps)]
    assert min(rates) > 0
    assert max(rates) == 1
    assert settings.global_batch >= 4  # several ranks have something to do


def test_a_preset_for_token_shards_has_its_large_steps_with_them_only(tmp_path):
    shard = tmp_path / "a_train_1.bin"
    write_shard(shard, range(64))
    with_shards = resolve({"model": "gpt2-124m", "dataset": str(shard)})
    assert (with_shards.settings.global_batch, with_shards.settings.warmup_steps) == (512, 700)
    assert with_shards.origins["global_batch"] == "preset gpt2-124m"
    typed = resolve({"model": "gpt2-124m", "dataset": str(shard), "global_batch": 8})
    assert typed.settings.global_batch == 8
    assert resolve({"model": "gpt2-124m"}).settings.global_batch == "auto"


def test_many_data_get_large_steps_and_one_pass():
    settings, steps, _ = settled(Settings(model="any"), chats([600] * 20_000))
    assert (settings.sequence_length, settings.packing, settings.global_batch) == (1024, True, 16)
    assert settings.epochs == 1
    assert settings.warmup_steps == 100 < steps / 10


@given(
    st.lists(st.integers(2, 3000), min_size=1, max_size=300),
    st.booleans(),
    st.sampled_from([None, 64, 512, 1000, 4096]),
    st.fixed_dictionaries(
        {},
        optional={
            "sequence_length": st.sampled_from([64, 256, 2048]),
            "packing": st.booleans(),
            "global_batch": st.integers(1, 64),
            "epochs": st.sampled_from([0.5, 1.0, 7.0]),
            "warmup_steps": st.integers(0, 50),
            "scratch": st.just(True),
        },
    ),
)
def test_what_is_given_is_kept_and_everything_else_is_in_bounds(lengths, plain, limit, given):
    before = Settings(model="any", **given)
    data = texts(lengths) if plain else chats(lengths)
    settings, steps, _ = settled(before, data, limit)
    assert not settings.automatic_steps
    assert {name: getattr(settings, name) for name in given} == given
    assert steps >= 1
    assert settings.warmup_steps <= 50 or settings.warmup_steps <= steps / 10
    if "sequence_length" not in given:
        cap = min(1024, limit or 1024)
        assert settings.sequence_length <= cap
        assert plain or max(lengths) <= settings.sequence_length or max(lengths) > cap
    if "epochs" not in given:
        assert 1 <= settings.epochs <= 5
    if "global_batch" not in given:
        assert 2 <= settings.global_batch <= 16
    assert settled(before, data, limit)[:2] == (settings, steps)


@given(st.integers(10_000, 3_000_000))
def test_a_long_text_is_cut_into_rows_with_a_context(tokens):
    settings, steps, _ = settled(Settings(model="any"), texts([tokens]))
    assert 256 <= settings.sequence_length <= 1024
    assert 50 <= steps <= 1000


def test_a_stream_and_token_shards_have_the_largest_steps_within_the_positions():
    wanted = {"sequence_length": 1024, "packing": True, "global_batch": 16, "epochs": 1}
    settings = Settings(model="any", streaming=True, max_steps=80)
    assert settle_rows(settings, None) == wanted
    assert settle_rows(settings, None, 512) == wanted | {"sequence_length": 512}
    assert settle_warmup(settings, 80) == {"warmup_steps": 8}


def test_a_typed_number_of_steps_changes_no_step():
    """So a trial of five steps shows what the whole run does."""
    trial = Settings(model="any", max_steps=5)
    data = chats(short_chats(1000))
    assert settle_rows(trial, data) == settle_rows(Settings(model="any"), data)
    assert settle_warmup(trial, 5) == {"warmup_steps": 0}


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
