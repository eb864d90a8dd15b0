"""Choice and creation of the optimizer and the learning-rate schedule."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.model.muon import Muon
from hearth.plan.schedule import rate_at


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
    """Return the optimizer's name without `auto`, one choice for all ranks.

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
    chosen: str,
    settings: Settings,
    model: TrainableModel,
    rank: int,
    share: Callable[[torch.Tensor], object],
) -> torch.optim.Optimizer:
    """Return the `chosen` optimizer for what `model` trains; `rank` and `share` as in `Muon`."""
    learned = [parameter for _, parameter in model.trainable()]
    rate = settings.learning_rate
    how = {"betas": (0.9, settings.beta2), "weight_decay": settings.weight_decay}
    if chosen == "adamw_8bit":
        from bitsandbytes.optim import AdamW8bit

        return AdamW8bit(learned, rate, **how)
    if chosen == "muon":
        hidden = model.hidden_matrices()
        among = {id(matrix) for matrix in hidden}
        others = [parameter for parameter in learned if id(parameter) not in among]
        return Muon(hidden, torch.optim.AdamW(others, rate, **how), rank, share)
    return torch.optim.AdamW(learned, rate, **how)


def make_schedule(
    settings: Settings, optimizer: torch.optim.Optimizer, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Return the learning-rate schedule over `steps` global steps, independent of the ranks."""

    def rate(step: int) -> float:
        return rate_at(step, steps, settings)

    return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
