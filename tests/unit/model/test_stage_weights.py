"""The estimate of a stage, against what a stage holds once it is loaded and while it computes."""

from __future__ import annotations

import pytest
import torch
from support.stages import CPU, packed_batch
from support.tiny_model import make_model
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import Glm4MoeConfig, LlamaConfig, MixtralConfig

from hearth.config import resolve
from hearth.config.shape import shape_in
from hearth.fit.estimate import case_of, kept, multiplied_out, part_of, stage_estimate
from hearth.model.precision import autocast
from hearth.model.stage import drawn_stage, load_stage

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
            expected -= four_bit * multiplied_out(shape_in(model), case)
            assert bytes_held(stage) == pytest.approx(expected, rel=0.01)


TOKENS, WIDTH, VOCABULARY = 512, 256, 4096
WIDE = {"hidden_size": WIDTH, "intermediate_size": 704, "num_hidden_layers": LAYERS}
KINDS = {
    "llama": (LlamaConfig, {}),
    "glm4 moe": (
        Glm4MoeConfig,
        FAMILIES["glm4 moe"][1] | {"moe_intermediate_size": 128, "head_dim": 64},
    ),
}


class Allocations(TorchDispatchMode):
    """Tensors made while this is active, and the most bytes of them at any time.

    Attributes:
        peak: those bytes.
        multiplied_out: bytes of the largest matrix made from one in 4 bits.
    """

    def __init__(self, *before):
        super().__init__()
        self._before = {tensor.untyped_storage().data_ptr() for tensor in before}
        self._made, self.peak, self.multiplied_out = {}, 0, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        for each in tree_leaves(results):
            if isinstance(each, torch.Tensor):
                storage = each.untyped_storage()
                if storage.data_ptr() not in self._before:
                    self._made[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
                if "dequantize_4bit" in str(operation):
                    self.multiplied_out = max(self.multiplied_out, storage.nbytes())
        self.peak = max(self.peak, self.held())
        return results

    def held(self):
        """Return the bytes of the tensors that are still there."""
        alive = {key: each for key, each in self._made.items() if not each[0].expired()}
        self._made = alive
        return sum(size for _, size in alive.values())


def computed(model, data, layers, bits, checkpointing, gpu=True):
    """Compute drawn layers forward and backward; return the bytes between, allocations and case."""
    settings = resolve(
        {
            **{"model": str(model), "dataset": str(data), "parallel": "pipeline", "micro_batch": 1},
            **{"precision": "bf16", "load_in_4bit": bits == 4, "load_in_8bit": bits == 8},
            **{"gradient_checkpointing": checkpointing, "lora_rank": 4, "sequence_length": TOKENS},
        }
    ).settings
    stage = drawn_stage(settings, model, CPU, "bf16", layers, LAYERS)
    batch = packed_batch(VOCABULARY, [TOKENS // 2, TOKENS // 2])
    entering = torch.randn(1, TOKENS, WIDTH).to(stage.hidden_dtype).requires_grad_()
    known = (*stage.network.parameters(), *stage.network.buffers(), entering)
    states = [each.quant_state for each in known if getattr(each, "quant_state", None)]
    with Allocations(*known, *(each.absmax for each in states)) as allocations:
        with autocast("bf16", CPU):
            if stage.last:
                leaving = stage.stage_loss(batch, entering, 1, ())
            else:
                leaving = stage.hidden(batch, entering, ())
        between = allocations.held()
        leaving.backward(torch.ones_like(leaving))
    return between, allocations, case_of(settings, gpu, gpus=gpu, all_gpus=gpu, ranks=3)


@pytest.mark.parametrize(
    ("kind", "bits", "checkpointing"),
    [
        ("llama", 16, False),
        ("llama", 16, True),
        ("llama", 4, False),
        ("llama", 4, True),
        ("llama", 8, True),
        ("glm4 moe", 4, False),
    ],
)
def test_the_estimate_is_what_a_layer_keeps_until_its_backward_pass(
    tmp_path, tiny_data, kind, bits, checkpointing
):
    family, more = KINDS[kind]
    model = make_model(tmp_path, family=family, **WIDE | {"vocab_size": VOCABULARY} | more)
    # What all layers share is in both.
    one, two = (
        computed(model, tiny_data, range(1, stop), bits, checkpointing, gpu=bits != 8)
        for stop in (2, 3)
    )
    layer = part_of(shape_in(model), 1, first=False, last=False)
    assert two[0] - one[0] == pytest.approx(kept(layer, one[2]), rel=0.05)
    if bits == 4:
        assert one[1].multiplied_out == multiplied_out(layer, one[2])


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_the_estimate_of_the_logits_is_the_most_that_the_head_takes(tmp_path, tiny_data, bits):
    model = make_model(tmp_path, **WIDE | {"vocab_size": VOCABULARY})
    _, allocations, case = computed(model, tiny_data, range(LAYERS, LAYERS), bits, False)
    expected = stage_estimate(shape_in(model), case, 0, first=False, last=True, in_flight=1).logits
    assert allocations.peak == pytest.approx(expected, rel=0.03)
