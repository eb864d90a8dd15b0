"""The optimizer and the learning rate over the steps."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import torch
from transformers import get_scheduler

from hearth.config import Settings
from hearth.errors import ConfigError


def choose_optimizer(wanted: str, every_rank_has_gpu: bool, bitsandbytes: bool) -> str:
    """Return `adamw` or `adamw_8bit`.

    `auto` takes 8 bits only where all ranks have an NVIDIA GPU: quantised state must be rounded
    alike everywhere, or the ranks drift apart.

    Raises `ConfigError` if 8 bits were asked for by name and bitsandbytes is missing.
    """
    if wanted == "adamw_8bit" and not bitsandbytes:
        raise ConfigError("optimizer: adamw_8bit needs bitsandbytes, which is not installed")
    if wanted == "auto":
        return "adamw_8bit" if every_rank_has_gpu and bitsandbytes else "adamw"
    return wanted


def make_optimizer(
    settings: Settings, parameters: Sequence[torch.nn.Parameter], every_rank_has_gpu: bool
) -> torch.optim.Optimizer:
    """Return the optimizer of the run. Raises as `choose_optimizer`."""
    installed = importlib.util.find_spec("bitsandbytes") is not None
    if choose_optimizer(settings.optimizer, every_rank_has_gpu, installed) == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(parameters, settings.learning_rate, weight_decay=settings.weight_decay)
    return torch.optim.AdamW(parameters, settings.learning_rate, weight_decay=settings.weight_decay)


def make_schedule(
    settings: Settings, optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the learning-rate schedule over `steps` global steps, whoever takes part in them."""
    return get_scheduler(
        settings.schedule,
        optimizer,
        num_warmup_steps=min(settings.warmup_steps, steps),
        num_training_steps=steps,
    )
