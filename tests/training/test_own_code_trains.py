"""A model whose code comes with it learns as any other, once a person has let its code run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from peft import PeftModel
from support.own_code import CODE, make_hermit
from support.ranks import figures, succeeded, train_forked
from transformers import AutoModelForCausalLM

from hearth.after.export import ExportRequest, export_run
from hearth.base.errors import ModelError
from hearth.config.layout import Layout

pytestmark = pytest.mark.usefixtures("code_cache")
IDS = torch.arange(40)[None]


@pytest.fixture
def typed(tmp_path, tiny_data):
    """Return the arguments of a short run on such a model."""
    return [
        *("--model", make_hermit(tmp_path / "hermit"), "--dataset", tiny_data),
        *(
            "--sequence-length",
            96,
            "--learning-rate",
            0.05,
            "--max-steps",
            4,
            "--eval-held-out",
            "off",
        ),
        *("--split", "equal", "--micro-batch", 1, "--wandb", "off", "--run-name", "night"),
    ]


def logits(folder, adapter=None):
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_two_ranks_that_load_its_code_at_the_same_time_train_and_the_adapter_is_merged(
    tmp_path, typed
):
    done = succeeded(train_forked(tmp_path, 2, *typed, "--trust-remote-code"))
    assert f"runs: {', '.join(CODE)} in" in done.stdout
    assert figures(tmp_path / "runs" / "night", "step", "step") == [1, 2, 3, 4]
    run, base = tmp_path / "runs" / "night", tmp_path / "hermit"
    layout = Layout.from_environment({"HEARTH_WORKSPACE": str(tmp_path)})
    asked = ExportRequest(run, "merged", folder=tmp_path / "merged")
    with pytest.raises(ModelError, match="trust_remote_code"):
        export_run(asked, layout, print)
    export_run(replace(asked, trust_remote_code=True), layout, print)
    learned = logits(base, run / "adapter")
    assert (learned - logits(base)).abs().max() > 0.01
    assert (learned - logits(tmp_path / "merged")).abs().max() < 1e-5


@pytest.mark.rotated
def test_a_whole_model_takes_its_code_along(tmp_path, typed):
    succeeded(train_forked(tmp_path, 1, *typed, "--trust-remote-code", "--lora", "off"))
    model = tmp_path / "runs" / "night" / "model"
    assert (logits(model) - logits(tmp_path / "hermit")).abs().max() > 0.01
    assert {*CODE} < {path.name for path in model.iterdir()}
