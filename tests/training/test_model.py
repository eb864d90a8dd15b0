"""The model behind the seam: documents stay apart, losses add up, adapters are plain PEFT."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from peft import PeftModel
from support.facts import refuses
from support.ranks import loaded, metrics, python, succeeded, train_forked
from support.several import on_ranks
from support.tiny_model import held_out_loss, make_model, make_seeing_model, make_tokenizer
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    Phi3Config,
    Qwen3Config,
)

from hearth.base.errors import HearthError
from hearth.config import ConfigError, Settings, load_preset
from hearth.data.load import load_data
from hearth.data.rows import Batch
from hearth.model import precision
from hearth.model.load import backend_here
from hearth.ranks.world import agree


def packed(first, second, padding=0):
    """Return one row of two documents, that learn all tokens but the first of each."""
    ids = np.array([[*first, *second, *[0] * padding]])
    labels = ids.copy()
    labels[0, [0, len(first)]] = -100
    labels[0, len(first) + len(second) :] = -100
    lengths = [len(first), len(second)] + [padding] * bool(padding)
    return Batch(ids, labels, np.concatenate([np.arange(n) for n in lengths])[None], lengths)


def logits(model, batch):
    with torch.no_grad():
        return model.network(
            input_ids=torch.as_tensor(batch.input_ids),
            position_ids=torch.as_tensor(batch.position_ids),
            use_cache=False,
        ).logits[0]


def keeps_documents_apart(model):
    """Require that a token changed in one document moves no logits of its neighbour."""
    one = logits(model, packed([5, 6, 7, 8], [9, 10, 11], padding=2))
    other = logits(model, packed([5, 60, 7, 8], [9, 10, 11], padding=2))
    assert not torch.equal(one[1:4], other[1:4])
    assert torch.equal(one[4:7], other[4:7])


FAMILIES = {
    "llama": (LlamaConfig, {}),  # and SmolLM2, TinyLlama
    "mistral": (MistralConfig, {"sliding_window": 4}),
    "qwen3": (Qwen3Config, {"head_dim": 8}),
    "gemma3": (Gemma3TextConfig, {"head_dim": 8, "sliding_window": 4}),
    "phi3": (Phi3Config, {}),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_token_changed_in_one_document_does_not_move_its_neighbours_logits(tmp_path, family):
    config, more = FAMILIES[family]
    keeps_documents_apart(loaded(make_model(tmp_path / family, family=config, **more)))


def test_a_model_that_also_sees_trains_on_text_and_keeps_documents_apart(tmp_path):
    folder = make_seeing_model(tmp_path / "gemma3")
    model = loaded(folder, lora_targets=load_preset("gemma3-4b").settings["lora_targets"])
    keeps_documents_apart(model)
    model.loss(packed([5, 6, 7, 8], [9, 10, 11]), 5).backward()
    reached = {"vision" in name for name, p in model.trainable() if p.grad is not None}
    assert reached == {False}


def test_ranks_on_which_other_layers_learn_are_named_with_them(tmp_path):
    folder = make_model(tmp_path / "phi3", family=Phi3Config)
    models = [
        loaded(folder, lora_targets=targets) for targets in ("all-linear", ("o_proj", "down_proj"))
    ]

    def rank(world):
        with refuses(HearthError, "node1", "down_proj, o_proj", "node0", "qkv_proj"):
            agree(world, models[world.rank].learning())

    on_ranks(2, rank)


def test_two_packed_documents_lose_what_they_lose_alone(tiny_model):
    model, alone = loaded(tiny_model), 0.0
    for ids in ([5, 6, 7, 8], [9, 10, 11]):
        row = np.array([ids])
        out = logits(model, Batch(row, row, np.arange(len(ids))[None], [len(ids)]))
        alone += F.cross_entropy(out[:-1], torch.tensor(ids[1:]), reduction="sum").item()
    together = model.loss(packed([5, 6, 7, 8], [9, 10, 11], padding=3), 1)
    assert together.item() == pytest.approx(alone, abs=1e-12)


def test_a_micro_batch_loses_what_its_rows_lose_one_by_one(tiny_model, tiny_data, tmp_path):
    model = loaded(tiny_model)
    rows = load_data(
        tiny_data, make_tokenizer(), sequence_length=96, packing=True, held_out=0.1, seed=1,
        cache=tmp_path,
    ).train  # fmt: skip
    denominator = int(rows.label_tokens.sum())
    whole = model.loss(rows.batch(np.arange(len(rows))), denominator)
    single = sum(model.loss(rows.batch([row]), denominator) for row in range(len(rows)))
    assert whole.item() == pytest.approx(single.item(), abs=1e-12)


def test_the_adapter_is_plain_peft_with_the_same_held_out_loss(
    tmp_path, arguments, tiny_model, tiny_data
):
    more = (*arguments, "--eval-held-out", "--max-steps", 8)
    succeeded(train_forked(tmp_path, 1, "--run", "night", *more))
    folder = tmp_path / "runs" / "night"
    before, after = metrics(folder, "evaluate")
    assert after["perplexity"] < before["perplexity"]
    loaded = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(tiny_model), folder / "adapter"
    )
    found = held_out_loss(loaded, tiny_data, tmp_path / "other")
    assert found == pytest.approx(after["loss"], abs=1e-5)
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tiny_model)


def test_unsloth_by_name_without_a_gpu_is_an_error_and_auto_is_not(monkeypatch):
    def chosen(backend, device, installed=True):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name if installed else None)
        return backend_here(Settings(model="any", backend=backend), torch.device(device))

    with refuses(ConfigError, "backend", "NVIDIA GPU"):
        chosen("unsloth", "cpu")
    with refuses(ConfigError, "backend", "not installed"):
        chosen("unsloth", "cuda", installed=False)
    assert chosen("auto", "cpu") == "transformers"
    assert chosen("auto", "cuda") == "unsloth"
    assert chosen("transformers", "cuda") == "transformers"


def test_unsloth_can_be_imported_before_all_that_it_patches(tmp_path):
    script = (
        "import sys, hearth.config, hearth.config.layout, hearth.model.load\n"
        "print({'transformers', 'peft', 'trl'} & set(sys.modules))"
    )
    assert succeeded(python(tmp_path, "-c", script)).stdout == "set()\n"


AMPERE = ("ampere", ("bf16", "fp16", "fp32", "fp64"))
TURING = ("turing", ("fp16", "fp32", "fp64"))
CPU = ("cpu", ("fp32", "bf16", "fp64"))


@pytest.mark.parametrize(
    ("wanted", "ranks", "chosen"),
    [
        ("auto", [AMPERE, AMPERE], "bf16"),
        ("auto", [AMPERE, TURING], "fp16"),
        ("auto", [CPU, CPU], "fp32"),
        ("auto", [AMPERE, CPU], "bf16"),
        ("auto", [TURING, CPU], "fp32"),
        ("fp64", [CPU, CPU], "fp64"),
    ],
)
def test_all_ranks_compute_in_one_precision(wanted, ranks, chosen):
    assert precision.choose(wanted, ranks) == chosen


def test_a_precision_that_a_node_lacks_is_refused_by_its_name():
    with refuses(ConfigError, "bf16", "turing", "-e nodes=", "precision=auto"):
        precision.choose("bf16", [AMPERE, TURING])
