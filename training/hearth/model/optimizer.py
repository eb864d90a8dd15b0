"""Choice and creation of the optimizer and the learning-rate schedule."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hearth.base.errors import ConfigError
from hearth.config import Settings


@dataclass(frozen=True)
class Means:
    """Hardware and libraries of one rank that decide on the optimizer."""

    node: str
    gpu: bool
    bitsandbytes: bool


def means_here(node: str, device: torch.device) -> Means:
    """Return the `Means` of this rank, on `node`."""
    installed = importlib.util.find_spec("bitsandbytes") is not None
    return Means(node, device.type == "cuda", installed)


def choose_optimizer(wanted: str, ranks: Sequence[Means], averaged: bool = False) -> str:
    """Return `adamw` or `adamw_8bit`, one choice for all ranks.

    `auto` takes 8 bits only if all ranks have an NVIDIA GPU, since ranks that round quantised state
    differently drift apart, and never if the ranks' state is `averaged`.

    Raises `ConfigError` naming the nodes without bitsandbytes if the user chose 8 bits.
    """
    lacking = [rank.node for rank in ranks if not rank.bitsandbytes]
    if wanted == "adamw_8bit" and lacking:
        raise ConfigError(
            f"optimizer: adamw_8bit needs bitsandbytes, which is not installed on "
            f"{', '.join(dict.fromkeys(lacking))}; install it there, leave such nodes out "
            "(-e nodes=…), or start a new run with optimizer=adamw (a resumed run keeps its "
            "optimizer)"
        )
    if wanted == "auto":
        able = not averaged and not lacking and all(rank.gpu for rank in ranks)
        return "adamw_8bit" if able else "adamw"
    return wanted


def make_optimizer(
    chosen: str, settings: Settings, parameters: Sequence[torch.nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the `chosen` optimizer for `parameters`."""
    how = {"betas": (0.9, settings.beta2), "weight_decay": settings.weight_decay}
    if chosen == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(parameters, settings.learning_rate, **how)
    return torch.optim.AdamW(parameters, settings.learning_rate, **how)


def make_schedule(
    settings: Settings, optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the learning-rate schedule over `steps` global steps, independent of the ranks."""
    # Import late: this loads half of transformers, which the checks do not need.
    from transformers import get_scheduler

    return get_scheduler(
        settings.schedule,
        optimizer,
        num_warmup_steps=min(settings.warmup_steps, steps),
        num_training_steps=steps,
    )
