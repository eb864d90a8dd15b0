"""Runs on a card: results, memory use, and ranks that share the card."""

from __future__ import annotations

import json

import pytest
import torch
from support.llama import make_texts
from support.ranks import figures, metrics

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

GIB = 1 << 30
LEFT = 3 * GIB


def losses(folder):
    return figures(folder, "step", "loss")


def test_bf16_is_chosen_where_the_card_has_it_and_learns_as_float32_does(trained):
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this card has no bf16")
    half, _ = trained("half", 1, "--backend", "transformers")
    full, _ = trained("full", 1, "--backend", "transformers", "--precision", "fp32")
    assert metrics(half, "start")[0]["precision"] == "bf16"
    assert losses(half) == pytest.approx(losses(full), rel=0.02)


def test_fp16_finds_its_scale_and_learns(trained):
    folder, _ = trained("half", 1, "--backend", "transformers", "--precision", "fp16")
    assert losses(folder)[-1] < 0.9 * losses(folder)[0]
    assert not any(figures(folder, "step", "skipped"))


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_quantised_weights_are_trained_on(trained, backend, bits):
    whole, _ = trained("whole", 1, "--backend", backend)
    small, _ = trained("small", 1, "--backend", backend, f"--load-in-{bits}")
    assert losses(small)[-1] < 0.9 * losses(small)[0]
    assert losses(small) == pytest.approx(losses(whole), rel=0.2)


@pytest.fixture
def crowded_card():
    """Leave three GiB of the card, as another program might."""
    free, _ = torch.cuda.mem_get_info()
    if free < 2 * LEFT:
        pytest.skip(f"the card has only {free / GIB:.1f} GiB free")
    ballast = torch.empty(free - LEFT, dtype=torch.uint8, device="cuda")
    yield
    del ballast
    torch.cuda.empty_cache()


@pytest.fixture
def large(tmp_path):
    """Return the arguments of steps larger than the card."""
    data = make_texts(tmp_path / "long.jsonl", 120, 2048)
    return [
        *("--backend", "transformers", "--precision", "fp32", "--dataset", data),
        *("--sequence-length", 2048, "--packing", "off", "--global-batch", 96, "--max-steps", 2),
        *("--fit", "warn"),  # a small card would be refused beforehand, as it should be
    ]


def test_rows_that_do_not_fit_are_computed_in_smaller_pieces_to_the_same_end(
    trained, crowded_card, large
):
    crowded, said = trained("crowded", 1, *large, "--micro-batch", 96)
    assert "not fit" in said
    careful, said = trained("careful", 1, *large, "--micro-batch", 1)
    assert "not fit" not in said
    assert losses(crowded) == pytest.approx(losses(careful), rel=1e-5)


def test_what_was_measured_to_be_fastest_fits(trained, crowded_card, large, tmp_path):
    _, said = trained("measured", 1, *large, "--micro-batch", "auto", "--split", "auto")
    (kept,) = (tmp_path / "cache/hearth/data/speeds").glob("*.json")
    measured = json.loads(kept.read_text())
    assert measured["saturated"]
    assert max(measured["sizes"]) < 96
    assert "not fit" not in said


@pytest.mark.parametrize("backend", ["unsloth", "transformers"])
def test_two_and_three_ranks_share_one_card_over_gloo(trained, backend):
    precision, within = ("bf16", 1e-2) if backend == "unsloth" else ("fp32", 1e-4)
    common = ("--backend", backend, "--precision", precision, "--micro-batch", 2)
    alone, _ = trained("one", 1, *common)
    for ranks, split in ((2, "2:1"), (3, "4:2:1")):
        shared, _ = trained(f"ranks-{ranks}", ranks, *common, "--split", split)
        start = metrics(shared, "start")[0]
        assert start["gradients"] == "gloo"
        assert [rank["device"] for rank in start["ranks"]] == ["cuda:0"] * ranks
        assert losses(shared) == pytest.approx(losses(alone), rel=within)
