"""Compatibility of a model with the settings of a run."""

from __future__ import annotations

import json
import os
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.facts import refuses
from support.ranks import loaded
from support.tiny_model import make_dataset, make_model, make_seeing_model, poison
from transformers import GPT2Config

from hearth.base.errors import HearthError
from hearth.config import resolve_run
from hearth.config.layout import Layout
from hearth.model.compatibility import check_dropout, check_length, weights_in
from hearth.model.load import load_model
from hearth.node.prepare import prepare


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folder(tmp_path, tiny):
    return shutil.copytree(tiny, tmp_path / "model")


@pytest.fixture
def prepared(tmp_path, folder):
    """Return a function that prepares a run on the tiny model with a changed config.json."""
    data = make_dataset(tmp_path / "words.jsonl")
    layout = Layout(*(tmp_path / name for name in ("runs", "runs", "data", "cache")), False)

    def act(changed, **settings):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changed))
        given = {"model": str(folder), "dataset": str(data), "sequence_length": 96, **settings}
        return prepare(resolve_run(given, layout.results), layout, say=lambda _: None)

    return act


SCRATCH = {"lora": False, "scratch": True}
QUANTISED = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.mark.parametrize(
    ("changed", "settings", "facts"),
    [
        (
            {"vocab_size": 40, "pad_token_id": None},
            SCRATCH,
            ["config.json: vocab_size", "40", "257"],
        ),
        ({"model_type": "nosuch"}, {}, ["config.json", "nosuch"]),
        ({}, {"sequence_length": 2049}, ["sequence_length", "2049", "2048"]),
        ({"num_attention_heads": 7}, SCRATCH, ["config.json", "heads"]),
        ({"quantization_config": QUANTISED}, {"lora": False}, ["quantised", "lora=off", "lora=on"]),
    ],
    ids=["too few tokens", "unknown type", "too long", "no model", "quantised weights"],
)
def test_a_configuration_that_does_not_suit_the_run_is_named(prepared, changed, settings, facts):
    with refuses(HearthError, *facts):
        prepared(changed, **settings)


@pytest.fixture(scope="module")
def dropping(tmp_path_factory):
    """Return a GPT-2, whose own configuration drops out a tenth."""
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    return make_model(folder, family=GPT2Config, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)


@pytest.mark.parametrize("how", [{}, {"lora": False}, SCRATCH], ids=["adapter", "whole", "scratch"])
@pytest.mark.parametrize(("dropout", "steady"), [(None, False), (0.5, False), (0, True)])
def test_a_models_own_dropout_can_be_switched_off(dropping, how, dropout, steady):
    network = loaded(dropping, dropout=dropout, **how).network.train()
    ids = torch.arange(24)[None]
    one, other = (network(ids, use_cache=False).logits for _ in range(2))
    assert torch.equal(one, other) == steady


def test_a_dropout_that_the_configuration_does_not_name_is_refused(tmp_path):
    folder = make_seeing_model(tmp_path / "seeing")
    check_dropout(folder, False, 0)
    with refuses(HearthError, "dropout", "config.json", "0.5"):
        check_dropout(folder, False, 0.5)


# 280 million weights.
LARGE = {"hidden_size": 1024, "intermediate_size": 8192, "num_hidden_layers": 10}


def test_checkpoints_of_a_whole_model_need_room(prepared, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 << 30))
    needs = []
    for every in (1, 4):
        with refuses(HearthError, "2048 MiB left") as refused:
            prepared(LARGE, checkpoint_keep=1, eval_every=None, sync_every=every, **SCRATCH)
        needs += [int(re.search(r"needs (\d{4,}) MiB", str(refused.value)).group(1))]
    assert prepared({"num_hidden_layers": 1, "hidden_size": 32}, **SCRATCH)
    # Rounds keep a momentum more: of each weight two checkpoints hold 4 numbers instead of 3,
    # beside two models.
    assert needs[1] == pytest.approx(needs[0] * 10 / 8, abs=2)


def test_a_weight_that_two_layers_share_counts_once(tmp_path):
    apart = weights_in(make_model(tmp_path / "apart"), own_code=False)
    tied = weights_in(make_model(tmp_path / "tied", tie_word_embeddings=True), own_code=False)
    assert apart - tied == 32 * (256 + 2)


Q, UP = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.weight"
EXTRA = "model.layers.0.extra.weight"


def without(tensors):
    return {name: tensor for name, tensor in tensors.items() if name not in (Q, UP)}


@pytest.mark.parametrize(
    ("spoil", "facts"),
    [
        (without, ["missing", Q, UP]),
        (lambda tensors: tensors | {EXTRA: torch.zeros(2)}, [EXTRA]),
        (lambda tensors: tensors | {Q: torch.zeros(3, 5)}, [Q, "3, 5", "32, 32"]),
    ],
    ids=["missing", "unexpected", "of another shape"],
)
def test_weights_that_are_not_those_of_the_configuration_are_named(prepared, folder, spoil, facts):
    path = folder / "model.safetensors"
    save_file(spoil(load_file(path)), path, {"format": "pt"})
    with refuses(HearthError, folder, *facts) as refused:
        prepared({})
    assert len(refused.value.findings) == 1


def test_shared_and_known_needless_tensors_are_no_finding(prepared, tmp_path, folder):
    shutil.rmtree(folder)
    make_model(folder, tie_word_embeddings=True)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    assert "lm_head.weight" not in tensors
    old = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)}
    save_file(tensors | old, path, {"format": "pt"})
    prepared({})


def test_packed_weights_of_a_quantised_model_are_no_finding(prepared, folder):
    path = folder / "model.safetensors"
    packed = {Q: torch.zeros(512, 1, dtype=torch.uint8), f"{Q}.absmax": torch.zeros(16)}
    save_file(load_file(path) | packed, path, {"format": "pt"})
    prepared({"quantization_config": QUANTISED}, load_in_4bit=True)
    save_file(without(load_file(path)), path, {"format": "pt"})
    with refuses(HearthError, UP):
        prepared({}, load_in_4bit=True)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({}, ["load_in_4bit=on", "4 bits"]),
        ({"load_in_8bit": True}, ["load_in_4bit=on", "4 bits"]),
        ({"load_in_4bit": True, "parallel": "pipeline"}, ["parallel", "4 bits", "parallel=ddp"]),
    ],
)
def test_a_run_that_does_not_suit_stored_bits_is_refused(prepared, folder, settings, facts):
    with refuses(HearthError, folder, *facts):
        prepared({"quantization_config": QUANTISED}, **settings)


def test_a_tokenizer_that_cannot_be_read_is_named_with_the_other_findings(prepared, folder):
    (folder / "tokenizer.json").write_text("{")
    with refuses(HearthError, folder, "tokenizer.json", "sequence_length", "2049"):
        prepared({}, sequence_length=2049)


def test_a_tokenizer_larger_than_the_embedding_is_named(prepared, folder):
    path = folder / "model.safetensors"
    few = {name: each[:40] if len(each) == 258 else each for name, each in load_file(path).items()}
    save_file(few, path, {"format": "pt"})
    with refuses(HearthError, "vocab_size", "40", "257", "tokenizer"):
        prepared({"vocab_size": 40, "pad_token_id": None})


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


@pytest.mark.parametrize(
    ("changed", "backend", "most"),
    [
        ({}, "transformers", 2048),
        ({"rope_scaling": YARN}, "transformers", 4096),
        ({"rope_scaling": YARN}, "unsloth", 2048),
        ({"rope_scaling": YARN | {"factor": 1.5}}, "transformers", 2048),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "transformers", 4096),
    ],
)
def test_rows_are_as_long_as_the_models_own_scaling_allows(folder, changed, backend, most):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({k: v for k, v in config.items() if k != "rope_parameters"} | changed)
    )
    check_length(folder, False, most, backend)
    with refuses(HearthError, most + 1, most):
        check_length(folder, False, most + 1, backend)


def test_files_that_the_user_may_not_read_are_all_named(prepared, folder, monkeypatch):
    locked = {folder / "model.safetensors", folder / "tokenizer.json"}
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, how: path not in locked and allowed(path, how))
    with refuses(HearthError, *locked, "may not read"):
        prepared({})


@pytest.mark.parametrize("value", [float("nan"), float("-inf")], ids=str)
@pytest.mark.parametrize(
    "settings", [{}, {"load_in_4bit": True}, {"load_in_8bit": True}, {"lora": False}], ids=str
)
def test_weights_that_are_not_finite_are_named_before_the_first_step(
    prepared, folder, settings, value
):
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors[UP][3, 5] = value
    save_file(tensors, path, {"format": "pt"})
    given = {"model": str(folder), **settings}
    run = resolve_run(given, folder)
    with refuses(HearthError, folder, UP):
        load_model(run.settings, folder, torch.device("cpu"), "fp32")


def test_an_embedding_of_one_token_is_left_to_training(folder, tmp_path):
    poison(folder, tmp_path / "poisoned")
    settings = resolve_run({"model": str(folder)}, folder).settings
    assert load_model(settings, tmp_path / "poisoned", torch.device("cpu"), "fp32")
