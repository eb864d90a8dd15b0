"""Tensors that a decoder layer saves for its backward pass. Pure arithmetic: no torch.

They were counted on Transformers' own modules (Llama, in fp32 and under autocast); frozen weights
need no saved inputs, adapters do. Unsloth's were read from the source of its kernels.
"""

from __future__ import annotations

from hearth.config import Settings
from hearth.config.shape import Linear, Shape
from hearth.fit.case import Case


def saved_by_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return (features per token, bytes per feature) of every tensor that one layer saves."""
    layer = _unsloth_layer(shape, case) if case.unsloth else _layer(shape, case)
    return layer + _dora_layer(shape, case)


def inputs_in_8_bits(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the inputs of a layer's matrices in 8 bits, as `saved_by_layer` does.

    bitsandbytes keeps them where Transformers' checkpointing does not find them, so they stay;
    Unsloth's has no graph of what it computes again.
    """
    if not case.settings.load_in_8bit or case.unsloth:
        return []
    norms, result = (shape.hidden_size, max(case.size, 4)), (shape.query_size, case.size)
    return [norms, result, norms, (shape.shared_size, case.linear_size)]


def is_target(shape: Shape, name: str, targets: tuple[str, ...] | str) -> bool:
    """Return whether LoRA's `targets` name the linear layer `name` of Llama or Phi-3."""
    own = shape.family.names.get(name, name)
    return isinstance(targets, str) or own in {target.rpartition(".")[2] for target in targets}


def dora_targets(shape: Shape, run: Settings) -> list[Linear]:
    """Return the linear layers of a decoder layer that DoRA adapts, none without it."""
    if not (run.lora and run.dora):
        return []
    return [
        each for name, each in shape.linears.items() if is_target(shape, name, run.lora_targets)
    ]


def _dora_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors that DoRA saves beyond LoRA's: the two results that it scales."""
    size = max(case.size, 4)
    return [(each.features_out, size) for each in dora_targets(shape, case.settings)] * 2


def _layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors of a layer of Transformers.

    Counted on Transformers' modules with PEFT's adapters. Under autocast the norms compute in fp32,
    and each adapter saves its own copy of its input. Linear layers in 4 bits then return fp32, but
    attention computes in 16 bits.
    """
    run, size, family, autocast = case.settings, case.size, shape.family, case.autocast
    returned = case.linear_size
    hidden, inner, query = shape.hidden_size, shape.shared_size, shape.query_size
    kept = [(hidden, max(size, 4))] * family.norms
    if shape.head_norms:
        kept += [(query, max(size, 4)), (shape.key_size, max(size, 4))]
    # Queries; keys and values, repeated for each head that shares them; the attention's output.
    kept += [(query, size)] * 4
    kept += [(run.sequence_length, size)]  # the mask that isolates documents: one row per token
    # Gate, its activation, up; without a gate the input of GPT-2's GELU and three terms of it.
    kept += [(inner, returned)] * (3 if family.gated else 4)
    if shape.num_experts:
        # What a token's experts return, in 4 bits also by their shares, and the three tensors of
        # their gate; they are frozen.
        taken = shape.num_experts_per_tok
        kept += [(taken * hidden, returned)] * (2 if run.load_in_4bit else 1)
        kept += [(taken * shape.moe_intermediate_size, returned)] * 3
    # Inputs of the trainable matrices: of the adapters, or of all linear layers.
    learning = run.lora_targets if run.lora else "all-linear"
    targets = [name for name in shape.linears if is_target(shape, name, learning)]
    for first in ("q_proj qkv_proj k_proj v_proj", "gate_proj gate_up_proj up_proj"):
        copies = sum(name in targets for name in first.split())
        kept += [(hidden, size)] * (copies if autocast else min(copies, 1))
    if "o_proj" in targets and autocast:
        kept += [(query, size)]  # else it is the attention's output itself
    if "down_proj" in targets:
        kept += [(inner, size)]
    if run.load_in_8bit:
        # It saves the input of every layer, which an adapter shares unless autocast copies it.
        readers = ("q_proj qkv_proj k_proj v_proj", "gate_proj gate_up_proj up_proj", "down_proj")
        attention, _, mlp, product = inputs_in_8_bits(shape, case)
        for tensor, names in zip((attention, mlp, product), readers, strict=True):
            if autocast or not set(names.split()) & set(targets):
                kept += [tensor]
    if not run.lora:
        return kept + [(hidden, max(size, 4))] * family.norms  # the norms' gains are trained, too
    return kept + [(run.lora_rank, size)] * len(targets)


def _unsloth_layer(shape: Shape, case: Case) -> list[tuple[int, int]]:
    """Return the tensors of `_layer` for Unsloth's kernels: shared inputs, no copies, no mask."""
    size = case.size
    kept = [(shape.hidden_size, size)] * (shape.family.norms + 2)
    kept += [(shape.query_size, size)] * 2 + [(shape.key_size, size)] * 2
    return kept + [(shape.shared_size, size)] * 2
