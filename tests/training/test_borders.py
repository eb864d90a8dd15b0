"""A model that does not keep the documents of a packed row apart is refused before it learns."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from support.facts import refuses
from support.ranks import loaded, metrics, refused, succeeded, train_forked
from support.tiny_model import make_model
from transformers import FalconConfig, GPT2Config, LlamaConfig, OPTConfig

from hearth.base.errors import ModelError
from hearth.model.loaded import check_isolation

OPT = {"ffn_dim": 64, "word_embed_proj_dim": 32, "dropout": 0.3}


@pytest.mark.parametrize("precision", ["fp64", "fp32"])
@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize(("family", "more"), [(OPTConfig, OPT), (FalconConfig, {})])
def test_a_family_that_mixes_documents_is_refused_by_name(tmp_path, family, more, lora, precision):
    model = loaded(make_model(tmp_path / "mixes", family=family, **more), precision, lora=lora)
    with refuses(ModelError, "home/mixes", "documents", "packing=off"):
        check_isolation(model, "home/mixes", nullcontext)


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
@pytest.mark.parametrize(
    ("family", "more"), [(LlamaConfig, {}), (GPT2Config, {"resid_pdrop": 0.3, "embd_pdrop": 0.3})]
)
def test_one_that_keeps_them_apart_is_left_as_it_was(tmp_path, family, more, precision):
    folder = make_model(tmp_path / "apart", family=family, **more)
    model = loaded(folder, precision, lora_dropout=0.3)
    modes = [module.training for module in model.network.modules()]
    weights = {name: value.clone() for name, value in model.network.state_dict().items()}
    drawn = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else nullcontext():
        check_isolation(model, "home/apart", nullcontext)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert [module.training for module in model.network.modules()] == modes
    assert all(modes)
    assert all(torch.equal(weights[n], value) for n, value in model.network.state_dict().items())
    assert all(parameter.grad is None for parameter in model.network.parameters())


@pytest.mark.rotated
def test_a_run_is_refused_before_its_first_step_and_goes_without_packing(tmp_path, arguments):
    opt = make_model(tmp_path / "opt", family=OPTConfig, **OPT)
    more = [*arguments, "--model", opt, "--max-steps", 1, "--lora", "off"]
    refused(train_forked(tmp_path, 2, "--run-name", "packed", *more), opt, "packing=off")
    succeeded(train_forked(tmp_path, 2, "--run-name", "single", *more, "--packing", "off"))
    assert len(metrics(tmp_path / "runs" / "single", "step")) == 1


@pytest.mark.rotated
def test_it_is_refused_while_its_speed_is_measured_before_the_ranks_meet(tmp_path, arguments):
    opt = make_model(tmp_path / "opt", family=OPTConfig, **OPT)
    by_speed = ["--split", "auto", "--micro-batch", "auto"]
    done = train_forked(tmp_path, 1, *arguments, "--model", opt, *by_speed)
    refused(done, opt, "packing=off")
    assert "measuring" in done.stdout
    assert not (tmp_path / "cache" / "hearth" / "data" / "speeds").exists()
    assert not list((tmp_path / "runs").glob("*/run.yml"))
