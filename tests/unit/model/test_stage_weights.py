"""The estimate of a stage's weights, against the weights that a stage holds once it is loaded."""

from __future__ import annotations

import pytest
import torch
from support.stages import CPU
from support.tiny_model import make_model
from transformers import Glm4MoeConfig, LlamaConfig, MixtralConfig

from hearth.config import resolve
from hearth.config.shape import shape_in
from hearth.fit.case import case_of
from hearth.fit.stage import stage_estimate
from hearth.model.stage import load_stage

LAYERS = 4
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": LAYERS}
FAMILIES = {
    "llama": (LlamaConfig, {}),
    "tied llama": (LlamaConfig, {"tie_word_embeddings": True}),
    "mixtral": (MixtralConfig, {"num_local_experts": 4}),
    "glm4 moe": (
        Glm4MoeConfig,
        {
            **{"num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
            **{"n_group": 1, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1},
            **{"head_dim": 32},
        },
    ),
}


def bytes_held(stage):
    """Return the bytes of the frozen weights, with the scales of those in 4 bits."""
    total = 0
    for weight in stage.network.parameters():
        if weight.requires_grad:
            continue
        total += weight.numel() * weight.element_size()
        if state := getattr(weight, "quant_state", None):
            total += state.absmax.numel() + 4 * state.state2.absmax.numel()
    return total


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_what_is_held(tmp_path, tiny_data, family):
    kind, more = FAMILIES[family]
    model = make_model(tmp_path / "model", family=kind, dtype=torch.bfloat16, **SIZES | more)
    for four_bit in (False, True):
        settings = resolve(
            {
                **{"model": str(model), "dataset": str(tiny_data), "parallel": "pipeline"},
                **{"precision": "bf16", "micro_batch": 1, "load_in_4bit": four_bit},
            }
        ).settings
        case = case_of(settings, gpu=True, gpus=True, all_gpus=True, ranks=3)
        for layers in (range(1), range(1, 3), range(3, LAYERS)):
            stage = load_stage(settings, model, CPU, "bf16", layers, LAYERS)
            expected = stage_estimate(
                shape_in(model),
                case,
                len(layers),
                first=stage.first,
                last=stage.last,
                in_flight=1,
            ).weights
            assert bytes_held(stage) == pytest.approx(expected, rel=0.01)
