"""Merging file by file: the same bits as PEFT's merge of the whole model, in bounded memory."""

from __future__ import annotations

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from support.facts import refuses
from support.ranks import python, succeeded
from support.tiny_model import make_model
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    Glm4MoeConfig,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
)

from hearth.base.errors import ModelError
from hearth.model.experts import shared_targets, targets_as_named
from hearth.model.merge_files import merge_files

MOE = {
    **{"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
    **{"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1},
}
CASES = {
    "plain": (LlamaConfig, {}, {}),
    "tied": (LlamaConfig, {"tie_word_embeddings": True}, {}),
    "dora": (LlamaConfig, {}, {"use_dora": True}),
    "rslora": (LlamaConfig, {}, {"use_rslora": True}),
    "head": (LlamaConfig, {"tie_word_embeddings": True}, {"target_modules": ["q_proj", "lm_head"]}),
    "gpt2": (GPT2Config, {"n_embd": 32, "n_head": 4, "n_layer": 2}, {}),
    "gemma3": (Gemma3TextConfig, {"head_dim": 8}, {}),
    "mixtral": (MixtralConfig, {"num_local_experts": 4}, {}),
    "glm4 moe": (Glm4MoeConfig, MOE, {}),
}


def make_adapter(base, folder, **more):
    """Write an adapter with random values for the model in `base`, and return its folder."""
    model = AutoModelForCausalLM.from_pretrained(base)
    targets = shared_targets(model, more.pop("target_modules", "all-linear"))
    with targets_as_named(model):
        adapted = get_peft_model(
            model, LoraConfig(r=4, lora_alpha=8, target_modules=targets, **more)
        )
    drawn = torch.Generator().manual_seed(0)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            noise = torch.randn(parameter.shape, generator=drawn)
            parameter.data += 0.1 * noise
    adapted.save_pretrained(folder, save_embedding_layers=False)
    return folder


def merged_by_peft(base, adapter):
    """Return the tensors of the whole model as PEFT merges it."""
    model = AutoModelForCausalLM.from_pretrained(base)
    with targets_as_named(model):
        adapted = PeftModel.from_pretrained(model, adapter)
        return adapted.merge_and_unload(safe_merge=True).state_dict()


def sizes_of_files(base, size):
    AutoModelForCausalLM.from_pretrained(base).save_pretrained(base, max_shard_size=size)
    (base / "model.safetensors").unlink(missing_ok=True)


@pytest.mark.parametrize("case", CASES)
def test_the_bits_are_those_of_pefts_merge(tmp_path, case):
    family, sizes, more = CASES[case]
    base = make_model(tmp_path / "base", family=family, dtype=torch.bfloat16, **sizes)
    if case == "plain":
        sizes_of_files(base, "20KB")
        assert len(list(base.glob("*.safetensors"))) > 2
    adapter = make_adapter(base, tmp_path / "adapter", **more)
    (tmp_path / "merged").mkdir()
    merge_files(base, False, adapter, tmp_path / "merged", lambda _: None)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict()
    if case == "head":
        plain = AutoModelForCausalLM.from_pretrained(base).state_dict()
        assert torch.equal(found["model.embed_tokens.weight"], plain["model.embed_tokens.weight"])
        assert not torch.equal(found["lm_head.weight"], plain["lm_head.weight"])
        return
    expected = merged_by_peft(base, adapter)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name
    unchanged = AutoModelForCausalLM.from_pretrained(base).state_dict()
    assert any(not torch.equal(found[name], unchanged[name]) for name in found)


@pytest.mark.parametrize("case", ["plain", "head"])
def test_weights_of_another_type_get_it_before_they_are_merged(tmp_path, case):
    family, sizes, more = CASES[case]
    base = make_model(tmp_path / "base", family=family, dtype=torch.bfloat16, **sizes)
    adapter = make_adapter(base, tmp_path / "adapter", **more)
    (tmp_path / "merged").mkdir()
    merge_files(base, False, adapter, tmp_path / "merged", lambda _: None, torch.float16)
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").state_dict()
    exact = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    name = "model.layers.1.self_attn.q_proj.weight"
    merged = PeftModel.from_pretrained(exact, adapter).merge_and_unload().state_dict()[name]
    assert {tensor.dtype for tensor in found.values()} == {torch.float16}
    assert (found[name].float() - merged).abs().max() < 2e-4  # a bf16 rounds ten times as much


_LIMITED = """
import re, resource, sys
from pathlib import Path
import torch
from hearth.model.merge_files import merge_files
torch.set_num_threads(1)
base, adapter, merged, spare = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
held = re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]
limit = 1024 * int(held) + int(spare)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
merge_files(base, False, adapter, merged, lambda _: None)
"""


@pytest.mark.rotated("merging within a limit of memory")
def test_a_model_larger_than_the_memory_is_merged(tmp_path):
    """The kernel refuses a process of its own more memory than a small part of the model takes."""
    sizes = {"hidden_size": 1024, "intermediate_size": 2048, "num_hidden_layers": 10}
    base = make_model(tmp_path / "base", dtype=torch.bfloat16, **sizes)
    adapter = make_adapter(base, tmp_path / "adapter")
    merged, spare = tmp_path / "merged", 90 << 20
    merged.mkdir()
    succeeded(python(tmp_path, "-c", _LIMITED, base, adapter, merged, spare))
    assert (merged / "model.safetensors").stat().st_size > 2 * spare
    found = AutoModelForCausalLM.from_pretrained(merged).state_dict()
    name = "model.layers.9.mlp.down_proj.weight"
    assert torch.equal(found[name], merged_by_peft(base, adapter)[name])


def test_an_adapter_of_another_model_or_kind_is_refused(tmp_path):
    small = make_model(tmp_path / "small")
    deeper = make_model(tmp_path / "deeper", num_hidden_layers=3)
    adapter = make_adapter(deeper, tmp_path / "adapter")
    (tmp_path / "merged").mkdir()
    with refuses(ModelError, adapter, small, "model.layers.2"):
        merge_files(small, False, adapter, tmp_path / "merged", lambda _: None)
    given = json.loads((adapter / "adapter_config.json").read_text())
    changed = given | {"rank_pattern": {"q_proj": 2}}
    (adapter / "adapter_config.json").write_text(json.dumps(changed))
    with refuses(ModelError, adapter, "rank_pattern"):
        merge_files(deeper, False, adapter, tmp_path / "merged", lambda _: None)
    assert list((tmp_path / "merged").iterdir()) == []
