"""Loading both sides of a chat: which models, from where, and the refusals."""

from __future__ import annotations

import shutil

import pytest
import torch
from peft import PeftModel
from support.facts import refuses
from support.finished import make_run
from support.own_code import make_hermit
from support.tiny_model import make_model, make_tokenizer
from transformers import AutoModelForCausalLM, Glm4MoeConfig

from hearth.after import sides as sides_of
from hearth.after.sides import Loading, bytes_loaded, stop_tokens
from hearth.base.errors import ModelError
from hearth.config import read_run
from hearth.data.template import PLAIN_TEMPLATE, end_of_turn
from hearth.model import transformers_backend
from hearth.model.merge_files import merge_files

TOKENS = torch.tensor([[5, 9, 30, 200]])


def logits(network):
    with torch.no_grad():
        return network(TOKENS).logits


def test_each_side_computes_what_it_would_alone_and_both_have_the_same_weights(
    sides, tiny_model, finished
):
    base, adapter = sides
    assert (base.name, adapter.name) == ("base", "adapter")
    plain = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert torch.equal(logits(base.network), logits(plain))
    adapted = PeftModel.from_pretrained(plain, finished / "adapter").eval()
    assert torch.equal(logits(adapter.network), logits(adapted))
    assert not torch.allclose(logits(base.network), logits(adapter.network))
    shared = {each.data_ptr() for each in base.network.parameters()}
    assert shared <= {each.data_ptr() for each in adapter.network.parameters()}


@pytest.mark.parametrize(
    ("bits", "layer"), [("load_in_4bit", "Linear4bit"), ("load_in_8bit", "Linear8bitLt")]
)
def test_a_quantised_base_is_shared_too(tmp_path, tiny_model, load, bits, layer):
    folder = make_run(tmp_path / "runs", "small", tiny_model, **{bits: True})
    base, adapter = load(folder)
    assert layer in {type(module).__name__ for module in base.network.modules()}
    before = logits(base.network)
    assert not torch.allclose(before, logits(adapter.network))
    assert torch.equal(before, logits(base.network))
    shared = {each.data_ptr() for each in base.network.parameters()}
    assert shared <= {each.data_ptr() for each in adapter.network.parameters()}


@pytest.mark.parametrize("bits", [{}, {"load_in_4bit": True}])
def test_shared_layers_beside_experts_have_their_adapter(tmp_path, load, bits):
    sizes = {"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    sizes |= {"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1}
    model = make_model(tmp_path / "moe", family=Glm4MoeConfig, num_hidden_layers=3, **sizes)
    folder = make_run(tmp_path / "runs", "moe", model, adapter=False, lora_rank=4, **bits)
    settings = read_run(folder / "run.yml").settings
    trained = transformers_backend.load(settings, model, torch.device("cpu"), "fp32")
    with torch.no_grad():
        for number, (_, parameter) in enumerate(trained.trainable()):
            drawn = torch.Generator().manual_seed(number)
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=drawn))
    trained.save(folder / "adapter", "moe")
    base, adapter = load(folder)
    assert torch.equal(logits(adapter.network), logits(trained.network.eval()))
    assert not torch.allclose(logits(base.network), logits(adapter.network))
    if not bits:
        (tmp_path / "merged").mkdir()
        merge_files(model, False, folder / "adapter", tmp_path / "merged", lambda _: None)
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
        assert (logits(merged) - logits(adapter.network)).abs().max() < 1e-5


def test_a_whole_model_answers_beside_its_base_if_that_is_here(tmp_path, tiny_model, load, layout):
    moved = shutil.copytree(tiny_model, tmp_path / "tiny")
    folder = make_run(tmp_path / "runs", "whole", moved, lora=False)
    said = []
    assert [side.name for side in load(folder, Loading(base=moved), said)] == ["base", "model"]
    shutil.rmtree(moved)
    assert [side.name for side in load(folder, said=said)] == ["model"]
    assert any("--base" in line for line in said)


def test_a_base_that_is_gone_or_another_is_refused_with_the_cure(tmp_path, tiny_model, load):
    moved = shutil.copytree(tiny_model, tmp_path / "tiny")
    folder = make_run(tmp_path / "runs", "evening", moved)
    shutil.rmtree(moved)
    with refuses(ModelError, moved, "--base"):
        load(folder)
    assert len(load(folder, Loading(base=tiny_model))) == 2
    make_model(moved, seed=7)
    with refuses(ModelError, moved, "evening", "--base"):
        load(folder)
    said = []
    assert len(load(folder, Loading(base=moved), said)) == 2
    assert any(str(moved) in line for line in said)


@pytest.mark.usefixtures("code_cache")
def test_code_of_a_models_own_is_asked_for_anew(tmp_path, finished, load):
    hermit = make_hermit(tmp_path / "hermit")
    with refuses(ModelError, "modeling_hermit.py", "--trust-remote-code"):
        load(finished, Loading(base=hermit))
    base, adapter = load(finished, Loading(base=hermit, trust_remote_code=True))
    assert type(base.network).__name__ == "HermitForCausalLM"
    assert not torch.allclose(logits(base.network), logits(adapter.network))


def test_what_does_not_fit_into_memory_is_said_with_ways_out(finished, load, monkeypatch):
    """A stand-in of a computer that has no memory left."""

    def full(*_):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(transformers_backend, "load_base", full)
    with refuses(ModelError, "--4bit", "free"):
        load(finished)


def test_what_a_computer_cannot_hold_is_not_begun(finished, load, monkeypatch, tiny_model):
    """A stand-in of a computer with few bytes left."""
    settings = read_run(finished / "run.yml").settings
    whole = bytes_loaded(tiny_model, settings, "fp32")
    weights = (tiny_model / "model.safetensors").stat().st_size
    assert whole == weights
    assert bytes_loaded(tiny_model, settings, "bf16") == whole / 2
    small = settings.model_copy(update={"load_in_4bit": True})
    assert bytes_loaded(tiny_model, small, "fp32") < whole / 4
    monkeypatch.setattr(sides_of, "_free_bytes", lambda: whole / 2)
    with refuses(ModelError, "--4bit", "free"):
        load(finished)
    assert len(load(finished, Loading(four_bit=True))) == 2


def test_a_card_may_hold_what_its_computer_could_not(finished, load, monkeypatch):
    """A stand-in of a GPU, torch's device without memory, in a computer with few bytes left."""
    monkeypatch.setattr(sides_of, "_free_bytes", lambda: 0)
    monkeypatch.setattr(sides_of, "own_device", lambda: torch.device("meta"))
    assert [side.network.device.type for side in load(finished)] == ["meta", "meta"]


def test_an_adapter_that_does_not_fit_or_is_damaged_is_named(tmp_path, tiny_model, load):
    other = make_model(tmp_path / "wide", hidden_size=64)
    folder = make_run(tmp_path / "runs", "evening", tiny_model)
    with refuses(ModelError, folder / "adapter", other, "--base"):
        load(folder, Loading(base=other))
    weights = folder / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with refuses(ModelError, folder / "adapter"):
        load(folder)


def test_an_answer_ends_at_every_token_that_the_model_or_its_template_knows():
    tokenizer = make_tokenizer()
    assert end_of_turn(tokenizer) == tokenizer.eos_token_id
    assert stop_tokens(tokenizer, [3, 4]) == sorted([3, 4, tokenizer.eos_token_id])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<turn|>"]})
    turn = tokenizer.convert_tokens_to_ids("<turn|>")
    tokenizer.chat_template = tokenizer.chat_template.replace("<|im_end|>", "<turn|>")
    assert stop_tokens(tokenizer, None) == sorted([tokenizer.eos_token_id, turn])
    tokenizer.chat_template = PLAIN_TEMPLATE
    assert stop_tokens(tokenizer, 3) == sorted([3, tokenizer.eos_token_id])
