"""Precision of a run: one choice for all ranks, autocast context and loss scaler."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from hearth.base.errors import ConfigError

DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}


def supported(device: torch.device) -> tuple[str, ...]:
    """Return the precisions that `device` supports, best first.

    CPUs prefer fp32: few have bf16 units, and emulating them is slower than fp32.
    """
    if device.type != "cuda":
        return ("fp32", "bf16", "fp64")
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return ("bf16", "fp16", "fp32", "fp64")
    return ("fp16", "fp32", "fp64")


def choose(wanted: str, ranks: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """Return the precision of the run.

    `ranks` holds node name and `supported` precisions of each rank. `auto` takes bf16 if every rank
    supports it; else fp16 if every rank supports that, else fp32; on CPUs alone fp32.

    Raises `ConfigError` naming the nodes that do not support the chosen precision.
    """
    if wanted == "auto":
        common = [name for name in ("bf16", "fp16", "fp32") if all(name in has for _, has in ranks)]
        all_on_cpu = all(has[0] == "fp32" for _, has in ranks)
        return "fp32" if all_on_cpu else common[0]
    unable = [node for node, has in ranks if wanted not in has]
    if unable:
        raise ConfigError(
            f"precision: {wanted} is not possible on {', '.join(dict.fromkeys(unable))}; "
            "leave such nodes out (-e nodes=…), or start a new run with precision=auto (a resumed "
            "run keeps its precision)"
        )
    return wanted


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the autocast context of the forward pass; it does nothing in fp32 and fp64."""
    if precision in ("bf16", "fp16"):
        return torch.autocast(device.type, dtype=DTYPES[precision])
    return nullcontext()


def loss_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Return the loss scaler, enabled only for fp16, where small gradients would vanish."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")
