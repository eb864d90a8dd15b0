"""Dropout is drawn by micro-batch, noise by row: what one plan drew, the same plan draws again."""

from __future__ import annotations

import functools

import pytest
from support.ranks import figures, furthest, learned, stopped, succeeded, train_forked, trained
from support.tiny_model import make_model
from transformers import GPT2Config

DROPPING = ("--lora-dropout", 0.3, "--precision", "fp64", "--max-steps", 8)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, arguments):
    """Return a function that trains with dropout, two rows at once, and each run only once."""
    cwd = tmp_path_factory.mktemp("dropout")
    common = [*arguments, "--split", "2:1", "--micro-batch", 2, *DROPPING]

    @functools.cache
    def run(name, ranks, *changed):
        found = trained(cwd, name, ranks, *common, *changed)
        return found, figures(cwd / "runs" / name, "step", "loss")

    return run


@pytest.mark.rotated("a plan and its draw")
def test_the_same_plan_is_the_same_draw_bit_for_bit(drawn):
    expected, losses = drawn("first", 2)
    found, again = drawn("again", 2)
    assert furthest(found, expected) == 0
    assert again == losses


@pytest.mark.rotated("a plan and its draw")
def test_another_split_is_another_draw(drawn):
    expected, losses = drawn("first", 2)
    found, others = drawn("other", 2, "--split", "1:2")
    assert furthest(found, expected) > 1e-3
    assert others != pytest.approx(losses, rel=1e-4)


def test_the_draw_is_the_micro_batchs_whichever_rank_computes_it(drawn):
    one, _ = drawn("one", 1, "--split", "equal", "--micro-batch", 1)
    three, _ = drawn("three", 3, "--split", "4:2:1", "--micro-batch", 1)
    assert furthest(one, three) < 1e-9


@pytest.mark.rotated
def test_noise_and_magnitudes_are_the_same_after_a_resume(tmp_path, arguments):
    more = [*arguments, "--dora", "--rslora", "--neftune", 5, "--max-steps", 4, "--split", "2:1"]
    expected = trained(tmp_path, "whole", 2, *more)
    stopped(tmp_path, "night", 2, *more)
    succeeded(train_forked(tmp_path, 2, "--resume", "night"))
    assert furthest(learned(tmp_path, "night"), expected) == 0
    without = trained(tmp_path, "without", 2, *more, "--neftune", 0)
    assert furthest(without, expected) > 1e-3


@pytest.mark.rotated
def test_a_models_own_dropout_is_drawn_by_micro_batch_and_again_after_a_resume(tmp_path, arguments):
    gpt2 = functools.partial(make_model, family=GPT2Config, attn_pdrop=0.0)
    drops = gpt2(tmp_path / "drops", resid_pdrop=0.3, embd_pdrop=0.3)
    whole = [*arguments, "--model", drops, "--lora", "off", "--split", "2:1"]
    whole += ["--max-steps", 4, "--precision", "fp64"]
    expected = trained(tmp_path, "whole", 2, *whole)
    stopped(tmp_path, "night", 2, *whole)
    succeeded(train_forked(tmp_path, 2, "--resume", "night"))
    assert furthest(learned(tmp_path, "night"), expected) == 0
    one = trained(tmp_path, "one", 1, *whole, "--split", "equal")
    assert furthest(one, expected) < 1e-9
    still = gpt2(tmp_path / "still", resid_pdrop=0.0, embd_pdrop=0.0)
    without = trained(tmp_path, "without", 1, *whole, "--model", still, "--split", "equal")
    assert furthest(without, expected) > 1e-3
