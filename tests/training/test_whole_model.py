"""`lora: off`: every weight learns, and a run leaves a plain model; also from random weights."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file
from support.facts import refuses
from support.ranks import loaded, metrics, stopped, succeeded, train_forked
from support.tiny_model import CHAT_TEMPLATE, held_out_loss, make_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.base.errors import CheckpointError


@pytest.fixture(scope="module")
def tied_model(tmp_path_factory):
    """The tiny model with one matrix for the first and the last layer, as small models have it."""
    return make_model(tmp_path_factory.mktemp("models") / "tied", tie_word_embeddings=True)


@pytest.fixture
def whole(arguments, tied_model):
    return [*arguments, "--model", tied_model, "--lora", "off", "--max-steps", 12]


def trained(cwd, ranks, *arguments):
    cwd.mkdir(exist_ok=True)
    succeeded(train_forked(cwd, ranks, *arguments))
    return cwd / "runs" / "night"


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_the_model_that_is_left_is_plain_transformers_and_as_good_as_was_measured(
    tmp_path, whole, tied_model, tiny_data
):
    folder = trained(
        tmp_path, 2, "--run-name", "night", *whole, "--eval-held-out", "--split", "2:1"
    )
    before, after = metrics(folder, "evaluate")
    assert after["loss"] < before["loss"]
    assert metrics(folder, "end")[0]["model"] == str(folder / "model")
    assert not (folder / "adapter").exists()

    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert str(tied_model) not in (folder / "model" / "config.json").read_text()
    found = held_out_loss(model, tiny_data, tmp_path / "other")
    assert found == pytest.approx(after["loss"], abs=1e-5)


def test_every_weight_learns_and_is_kept_in_float32_where_bf16_computes(
    tmp_path, whole, tied_model
):
    folder = trained(tmp_path, 1, "--run-name", "night", *whole, "--precision", "bf16")
    first, *_, last = metrics(folder, "step")
    assert last["loss"] < first["loss"]
    before, after = weights(tied_model), weights(folder / "model")
    assert before.keys() == after.keys()
    assert all(tensor.dtype == torch.float32 for tensor in after.values())
    assert not any(torch.equal(before[name], after[name]) for name in before)
    assert metrics(folder, "start")[0]["trainable_parameters"] == sum(
        tensor.numel() for tensor in after.values()
    )


@pytest.mark.rotated
def test_a_checkpoint_of_another_model_is_refused(tmp_path, whole):
    folder = stopped(tmp_path, "night", 1, *whole)
    other = make_model(tmp_path / "other")  # whose last layer has a matrix of its own
    model = loaded(other, "fp32", lora=False)
    (step,) = (folder / "checkpoints").glob("step-*")
    with refuses(CheckpointError, step / "model"):
        model.restore(step / "model")


@pytest.fixture
def bare(tmp_path, tied_model):
    """The tiny model's configuration and tokenizer, and no weights."""
    folder = shutil.copytree(tied_model, tmp_path / "bare")
    (folder / "model.safetensors").unlink()
    return folder


@pytest.mark.rotated
def test_from_scratch_the_weights_come_from_the_seed_alone(tmp_path, whole, bare, tied_model):
    more = [*whole, "--scratch"]
    first = trained(tmp_path / "a", 1, "--run-name", "night", *more, "--model", bare)
    same = trained(tmp_path / "b", 1, "--run-name", "night", *more)
    other = trained(tmp_path / "c", 1, "--run-name", "night", *more, "--seed", 2)
    steps = metrics(first, "step")
    assert steps[-1]["loss"] < steps[0]["loss"]
    one, two, three = (weights(folder / "model") for folder in (first, same, other))
    assert one.keys() == weights(tied_model).keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not any(torch.equal(one[name], three[name]) for name in one)
    AutoModelForCausalLM.from_pretrained(first / "model")


@pytest.mark.rotated
def test_from_scratch_goes_on_bit_for_bit_and_needs_no_weights_for_it(tmp_path, whole, bare):
    more = [*whole, "--scratch", "--model", bare]
    expected = weights(trained(tmp_path / "a", 1, "--run-name", "night", *more) / "model")
    stopped(tmp_path / "b", "night", 1, *more)
    found = weights(trained(tmp_path / "b", 1, "--resume", "night") / "model")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_all_precisions_begin_from_scratch_with_the_same(tied_model):
    drawn = []
    for precision in ("fp32", "bf16", "fp64"):
        model = loaded(tied_model, precision, lora=False, scratch=True)
        drawn.append({name: weight.double() for name, weight in model.trainable()})
    for other in drawn[1:]:
        assert all(torch.equal(drawn[0][name], other[name]) for name in drawn[0])
