"""Stages of a model, chained in one process, against the whole model in float64."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.facts import refuses
from support.stages import CPU, chained_loss, gradients, load_stages, packed_batch, stir
from support.tiny_model import make_model
from transformers import (
    FalconConfig,
    Gemma3TextConfig,
    Glm4MoeConfig,
    GPT2Config,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
)

from hearth.base.errors import CheckpointError, ModelError
from hearth.config import resolve
from hearth.model.divided import FAMILIES
from hearth.model.transformers_backend import load

LAYERS = 5
SEEDS = (11, 12)
EIGHT = "load_in_8bit"
FULL = "full_attention"
SIZES = {
    "llama": (LlamaConfig, {}),
    "tied llama": (LlamaConfig, {"tie_word_embeddings": True}),
    "mistral": (MistralConfig, {"sliding_window": 6}),
    "qwen2": (
        Qwen2Config,
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 2},
    ),
    "qwen3": (Qwen3Config, {"head_dim": 16}),
    "smollm3": (SmolLM3Config, {"no_rope_layer_interval": 2}),
    "gemma3": (
        Gemma3TextConfig,
        {
            "head_dim": 8,
            "sliding_window": 6,
            "layer_types": [*["sliding_attention"] * 3, FULL, FULL],
        },
    ),
    "phi3": (Phi3Config, {}),
    "granite": (
        GraniteConfig,
        {"embedding_multiplier": 12.0, "logits_scaling": 8.0, "residual_multiplier": 0.22},
    ),
    "gpt2": (
        GPT2Config,
        {
            **{"n_embd": 32, "n_head": 4, "n_layer": LAYERS, "n_positions": 64},
            **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        },
    ),
    "mixtral": (MixtralConfig, {"num_local_experts": 4}),
    "qwen3 moe": (
        Qwen3MoeConfig,
        {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "mlp_only_layers": [1],
        },
    ),
    "glm4 moe": (
        Glm4MoeConfig,
        {
            **{"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
            **{"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1},
        },
    ),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Several threads of so small a model wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Return a function that writes a model of a family once, and returns its folder."""
    made: dict[str, Path] = {}

    def model(name: str) -> Path:
        if name not in made:
            family, sizes = SIZES[name]
            folder = tmp_path_factory.mktemp("models") / name.replace(" ", "-")
            made[name] = make_model(
                folder, family=family, dtype=torch.float64, num_hidden_layers=LAYERS, **sizes
            )
        return made[name]

    return model


@pytest.fixture
def settings(tiny_data):
    """Return a function that gives the settings of a run with a model."""

    def of(folder: Path, **more: object):
        common = {"dataset": str(tiny_data), "lora_rank": 4, "model": str(folder)}
        return resolve(common | more).settings

    return of


def whole_of(given, precision="fp64"):
    torch.manual_seed(given.seed)
    return load(given, Path(given.model), CPU, precision)


def batch_for(model):
    """Return two packed rows, one of them padded, longer than a sliding window."""
    return packed_batch(model.network.config.vocab_size, (9, 3, 12), (7, 11))


def compared(given, cut, precision="fp64"):
    """Return loss and gradients of the whole model, and of its stages."""
    whole, stages = whole_of(given, precision), load_stages(given, precision, *cut)
    for model in (whole, *stages):
        stir(model)
    rows = batch_for(whole)
    torch.manual_seed(SEEDS[0])
    whole.draw_noise(rows, SEEDS)
    loss = whole.loss(rows, 37)
    loss.backward()
    found = chained_loss(stages, rows, 37, SEEDS)
    return (loss.item(), gradients(whole)), (found, gradients(*stages))


def same(expected, found, bound=1e-12):
    assert found[0] == pytest.approx(expected[0], rel=bound)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        assert (found[1][name] - gradient).norm() <= bound * gradient.norm(), name
        assert gradient.norm() > 0, name


@pytest.mark.parametrize("family", SIZES)
def test_stages_have_the_loss_and_the_gradients_of_the_whole_model(make, settings, family):
    same(*compared(settings(make(family), gradient_checkpointing=True), (1, 4, 5)))


def test_without_checkpointing_and_over_two_stages_too(make, settings):
    same(*compared(settings(make("llama"), gradient_checkpointing=False), (2, 5)))


@pytest.mark.parametrize(
    ("family", "bits"),
    [
        *((family, bits) for family in ("llama", "gpt2") for bits in ("load_in_4bit", EIGHT)),
        *((family, "load_in_4bit") for family in ("mixtral", "qwen3 moe", "glm4 moe")),
    ],
)
def test_quantised_stages_have_the_weights_and_the_loss_of_the_whole_model(
    make, settings, family, bits
):
    given = settings(make(family), **{bits: True})
    same(*compared(given, (2, 5), "fp32"), bound=1e-5)
    whole = dict(whole_of(given, "fp32").network.named_parameters())
    for stage in load_stages(given, "fp32", 2, 5):
        for name, weight in stage.network.named_parameters():
            assert weight.dtype == whole[name].dtype
            assert torch.equal(weight, whole[name])
            if state := getattr(weight, "quant_state", None):
                expected = whole[name].quant_state.as_dict(packed=True)
                found = state.as_dict(packed=True)
                assert all(torch.equal(found[key], expected[key]) for key in expected)
            elif (scales := getattr(weight, "SCB", None)) is not None:
                assert torch.equal(scales, whole[name].SCB)


def test_every_family_is_compared():
    assert {config.model_type for config, _ in SIZES.values()} == set(FAMILIES)


@pytest.mark.parametrize(
    ("family", "noise"),
    [("llama", {"lora_dropout": 0.3, "neftune": 5}), ("gpt2", {"dropout": 0.2})],
)
def test_dropout_depends_on_the_row_and_the_layer_not_on_the_stages(make, settings, family, noise):
    given = settings(make(family), gradient_checkpointing=True, **noise)
    found = []
    for cut in ((5,), (2, 5), (1, 4, 5)):
        stages = load_stages(given, "fp64", *cut)
        for stage in stages:
            stir(stage)
        rows = batch_for(stages[0])
        found.append((chained_loss(stages, rows, 37, SEEDS), gradients(*stages)))
        # Random numbers of others in between change nothing, nor does another seed of theirs.
        assert chained_loss(stages, rows, 37, SEEDS) == found[-1][0]
        assert chained_loss(stages, rows, 37, (13, 14)) != found[-1][0]
    same(found[0], found[1])
    same(found[0], found[2])
    plain = compared(settings(make(family)), (2, 5))
    assert abs(plain[0][0] - found[0][0]) > 1e-6


def test_a_layer_that_is_computed_again_draws_what_it_drew(make, settings):
    """Checkpointing, with the forward passes of other micro-batches before the backward pass."""
    found = []
    for checkpointing in (False, True):
        given = settings(make("llama"), gradient_checkpointing=checkpointing, lora_dropout=0.3)
        (stage,) = load_stages(given, "fp64", 5)
        stir(stage)
        losses = [stage.stage_loss(batch_for(stage), None, 37, (seed, 0)) for seed in (1, 2)]
        for loss in losses:
            loss.backward()
        found.append((sum(loss.item() for loss in losses), gradients(stage)))
    same(*found)


def test_the_adapter_is_saved_in_parts_and_restored_on_another_placement(make, settings, tmp_path):
    given = settings(make("llama"))
    whole, stages = whole_of(given), load_stages(given, "fp64", 2, 5)
    for model in (whole, *stages):
        stir(model)
    whole.save(tmp_path / "expected", "base")
    tensors = {name: each for stage in stages for name, each in stage.adapter_tensors().items()}
    stages[1].save_whole(tmp_path / "found", "base", tensors)
    ways = ("expected", "found")
    configs = [json.loads((tmp_path / way / "adapter_config.json").read_text()) for way in ways]
    targets = [set(config.pop("target_modules")) for config in configs]
    assert (configs[0], targets[0]) == (configs[1], targets[1])
    files = [load_file(tmp_path / way / "adapter_model.safetensors") for way in ways]
    assert files[0].keys() == files[1].keys()
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    others = load_stages(given, "fp64", 1, 4, 5)
    for stage in others:
        stage.restore(tmp_path / "found")
    learned = dict(whole.trainable())
    for stage in others:
        assert all(torch.equal(each, learned[name]) for name, each in stage.trainable())
    stages[0].save(tmp_path / "part", "base")
    others[0].restore(tmp_path / "part")
    with refuses(CheckpointError, tmp_path / "part"):
        others[1].restore(tmp_path / "part")


def test_an_adapter_is_restored_where_all_of_it_fits_and_nowhere_else(make, settings, tmp_path):
    given = settings(make("llama"))
    whole, again = whole_of(given), whole_of(given)
    stir(whole)
    whole.save(tmp_path / "adapter", "base")
    again.restore(tmp_path / "adapter")
    learned = dict(whole.trainable())
    assert all(torch.equal(each, learned[name]) for name, each in again.trainable())
    for targets in (("q_proj",), ("q_proj", "k_proj", "v_proj", "o_proj", "down_proj", "up_proj")):
        other = whole_of(settings(make("llama"), lora_targets=targets))
        with refuses(CheckpointError, tmp_path / "adapter"):
            other.restore(tmp_path / "adapter")


def test_stages_agree_on_what_they_learn(make, settings):
    given = settings(make("llama"))
    told = [model.learning() for model in (whole_of(given), *load_stages(given, "fp64", 2, 5))]
    assert told[0] == told[1] == told[2]
    fewer = load_stages(settings(make("llama"), lora_targets="q_proj,o_proj"), "fp64", 2, 5)
    assert fewer[0].learning() != told[0]


def test_stages_answer_as_the_whole_model_does(make, settings):
    given = settings(make("llama"))
    whole, stages = whole_of(given), load_stages(given, "fp64", 1, 4, 5)
    for model in (whole, *stages):
        stir(model)
        model.generation_mode()
    prompt = [70, 71, 72]
    tokens = list(prompt)
    for _ in range(6):
        rows = packed_batch(1, [len(tokens)])
        rows.input_ids[:] = tokens
        hidden = None
        for stage in stages[:-1]:
            hidden = stage.hidden(rows, hidden, ())
        tokens.append(stages[-1].next_token(rows, hidden))
    answer = whole.tokenizer.decode(tokens[3:], skip_special_tokens=True).strip()
    assert answer == whole.generate(prompt, 6)
    assert stages[-1].end_tokens == {whole.tokenizer.eos_token_id}


def test_what_cannot_be_divided_is_refused_by_name(settings, tmp_path):
    folder = make_model(tmp_path / "falcon", family=FalconConfig)
    with refuses(ModelError, folder, "falcon", "llama"):
        load_stages(settings(folder), "fp32", 1, 2)


def test_experts_in_8_bits_are_refused(make, settings):
    given = settings(make("mixtral"), load_in_8bit=True)
    for load_either in (whole_of, lambda *each: load_stages(*each, LAYERS)):
        with refuses(ModelError, "load_in_8bit", "load_in_4bit"):
            load_either(given, "fp32")
