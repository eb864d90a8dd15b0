"""Models with a mixture of experts: their experts stay frozen, and LoRA learns in all other layers.

Transformers keeps all experts of a layer in two tensors of three dimensions. PEFT would adapt those
where `lora_targets` names their projections, with one adapter for each of a hundred experts; here
the adapter is on attention, on layers without experts and on shared experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D


def experts_in(base: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the modules of `base` that hold all experts of a layer, by name."""
    return {
        name: module
        for name, module in base.named_modules()
        if getattr(getattr(module, "gate_up_proj", None), "ndim", 0) == 3
    }


def shared_targets(base: PreTrainedModel, targets: tuple[str, ...] | str) -> list[str]:
    """Return the linear layers outside of experts that `lora_targets` name.

    A name has two parts, such as `self_attn.q_proj`, since others may share its last one.
    """
    head = base.get_output_embeddings()
    found = {
        ".".join(name.split(".")[-2:])
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D)
        and (
            module is not head
            if isinstance(targets, str)
            else any(f".{name}".endswith(f".{target}") for target in targets)
        )
    }
    return sorted(found)


@contextmanager
def targets_as_named(base: PreTrainedModel) -> Iterator[None]:
    """Keep PEFT from reading the targets of an adapter for `base` as names of experts.

    It takes `gate_proj` for what older versions of Transformers called so, and goes by the type.
    """
    config: Any = base.config
    known = config.model_type
    config.model_type = f"{known} with frozen experts"
    try:
        yield
    finally:
        config.model_type = known
