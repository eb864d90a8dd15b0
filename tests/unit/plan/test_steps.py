"""The steps that `auto` is resolved to: enough to learn from on few data, few on many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lengths import SHIPPED, chats, of_preset, settled, short_chats, texts
from support.shards import write_shard

from hearth.config import Settings, preset_names, resolve
from hearth.plan.steps import rate_at, settle_rows, settle_warmup

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
