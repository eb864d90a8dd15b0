"""Unsloth's kernels in Hearth's loop give the gradients that Transformers gives."""

from __future__ import annotations

import pytest
import torch
from support.rotated import in_turn
from support.tiny_model import make_model, make_tokenizer
from support.unsloth_ranks import LENGTH
from transformers import Gemma3TextConfig, MistralConfig, Phi3Config, Qwen3Config

pytestmark = pytest.mark.long

UNEQUAL = (2, 1)


def apart(one, other):
    """Return the distance of two sets of gradients, relative to the second."""
    assert one.keys() == other.keys()
    names = sorted(one.keys() - {"loss"})
    first, second = (torch.cat([each[name].flatten() for name in names]) for each in (one, other))
    return ((first - second).norm() / second.norm()).item()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        *in_turn({"packing": False}),
        *in_turn({"gradient_checkpointing": True}),
    ],
)
def test_rows_packed_padded_or_checkpointed_have_the_gradients_of_transformers(
    computed, llama, settings
):
    expected = computed("gradients", "transformers", "fp32", llama, 3)
    if "packing" in settings:
        expected = computed("gradients", "transformers", "fp32", llama, 3, **settings)
    found = computed("gradients", "unsloth", "fp32", llama, *UNEQUAL, **settings)
    assert apart(found, expected) < 3e-6
    assert found["loss"].item() == pytest.approx(expected["loss"].item(), rel=1e-6)


@pytest.mark.rotated
def test_inputs_of_layers_that_wait_in_host_memory_lose_no_digit(computed, llama):
    common = {"sequence_length": 512, "packing": False}
    expected = computed("gradients", "transformers", "fp32", llama, 3, **common)
    common |= {"gradient_checkpointing": True}
    found = computed("offloaded", "unsloth", "fp32", llama, *UNEQUAL, **common)
    assert apart(found, expected) < 3e-6


@pytest.mark.rotated
@pytest.mark.parametrize(("precision", "bound"), [("bf16", 0.03), ("fp16", 5e-3)])
def test_16_bits_are_as_near_to_float32_as_those_of_transformers(computed, llama, precision, bound):
    exact = computed("gradients", "transformers", "fp32", llama, 3)
    plain = computed("gradients", "transformers", precision, llama, *UNEQUAL)
    fast = computed("gradients", "unsloth", precision, llama, *UNEQUAL)
    assert apart(plain, exact) < bound
    assert apart(fast, exact) < 2 * apart(plain, exact)


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("switch", "effect"),
    [
        ({"load_in_4bit": True}, 0.1),
        ({"load_in_8bit": True}, 1e-3),
        ({"rslora": True}, 1),
        ({"neftune": 5.0}, 0.1),
    ],
    ids=str,
)
def test_a_switch_has_the_effect_that_it_has_in_transformers(computed, llama, switch, effect):
    exact, plain = (
        computed("gradients", "transformers", "fp32", llama, 3, **switched)
        for switched in ({}, switch)
    )
    fast = computed("gradients", "unsloth", "fp32", llama, *UNEQUAL, **switch)
    assert apart(fast, plain) < 3e-6
    assert apart(plain, exact) > effect


@pytest.mark.rotated
@pytest.mark.parametrize("more", [{}, {"load_in_4bit": True}], ids=str)
def test_magnitudes_learn_what_they_learn_in_transformers(computed, llama, more):
    plain = computed("gradients", "transformers", "fp32", llama, 3, dora=True, **more)
    fast = computed("gradients", "unsloth", "fp32", llama, *UNEQUAL, dora=True, **more)
    assert any("lora_magnitude" in name for name in plain)
    assert apart(fast, plain) < 3e-6


@pytest.mark.rotated
def test_a_packed_document_does_not_see_its_neighbour(computed, llama):
    losses = {n: loss.item() for n, loss in computed("isolation", "unsloth", "fp32", llama).items()}
    assert losses["neighbour"] == pytest.approx(losses["as it is"], rel=1e-6)
    assert losses["itself"] != pytest.approx(losses["as it is"], rel=1e-5)


@pytest.mark.rotated
@pytest.mark.parametrize("length", [LENGTH, 512])
def test_dropout_is_the_same_when_a_layer_is_computed_again(computed, llama, length):
    common = {"lora_dropout": 0.3, "sequence_length": length, "packing": False}
    found, expected, without = (
        computed("gradients", "unsloth", "fp32", llama, 1, **common | changed)
        for changed in ({"gradient_checkpointing": True}, {}, {"lora_dropout": 0})
    )
    assert apart(found, expected) < 1e-6
    assert apart(without, expected) > 0.01


@pytest.mark.rotated
@pytest.mark.parametrize(
    "special", [{"pad_token": None}, {"pad_token": None, "unk_token": "!"}, {"pad_token": "~"}]
)
def test_a_tokenizer_may_pad_with_anything_or_nothing(computed, tmp_path, special):
    """As those of the presets do: some pad with their end-of-text token, some have no padding."""
    model = make_model(tmp_path / "model")
    tokenizer = make_tokenizer()
    for name, token in special.items():
        setattr(tokenizer, name, token)
    tokenizer.save_pretrained(model)
    found, expected = (
        computed("gradients", backend, "fp32", model, 3, packing=False)
        for backend in ("unsloth", "transformers")
    )
    assert apart(found, expected) < 3e-6


@pytest.mark.rotated
@pytest.mark.parametrize("family", [Qwen3Config, MistralConfig, Gemma3TextConfig, Phi3Config])
def test_each_family_learns_in_the_same_modules_what_transformers_learns(
    computed, tmp_path, family
):
    model = make_model(tmp_path / "model", family=family, head_dim=8)
    exact = computed("gradients", "transformers", "fp32", model, 3)
    assert apart(computed("gradients", "unsloth", "fp32", model, *UNEQUAL), exact) < 3e-6
    plain, fast = (
        computed("gradients", backend, "bf16", model, *UNEQUAL)
        for backend in ("transformers", "unsloth")
    )
    assert apart(fast, exact) < 2 * apart(plain, exact)
