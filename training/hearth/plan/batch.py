"""The effective batch of a run, and the learning rate that suits it. Pure."""

from __future__ import annotations

import math

from hearth.config import Settings

_ADAM = ("auto", "adamw", "adamw_8bit")


def describe_batch(settings: Settings, rows: int, tokens: int) -> str:
    """Describe a step of a run whose data are `rows` that hold `tokens` in all."""
    size = min(settings.global_batch, rows)
    about = "" if tokens == rows * settings.sequence_length else "about "
    unit = "row" if size == 1 else "rows"
    return f"batch: {size} {unit} a step, {about}{round(tokens * size / rows)} tokens"


def scaled_rate(rate: float, tuned: int, batch: int) -> float:
    """Return the learning rate for `batch` tokens a step where `rate` suits `tuned` tokens.

    The square-root scaling rule for Adam: Malladi et al. 2022, arXiv:2205.10287.
    """
    return rate * math.sqrt(batch / tuned)


def advised_rate(settings: Settings, tuned: Settings) -> str | None:
    """Return a hint at the learning rate for the batch of `settings`, or None if none is due.

    It is due where the learning rate is still that of `tuned`, the settings of a preset, and the
    batch is not. Nothing is known of averaged local steps, nor of optimizers other than Adam's.
    """
    batch, own = (each.global_batch * each.sequence_length for each in (settings, tuned))
    same = ("learning_rate", "lora", "scratch", "sync_every")
    if batch == own or any(getattr(settings, name) != getattr(tuned, name) for name in same):
        return None
    if not {settings.optimizer, tuned.optimizer} <= set(_ADAM):
        return None
    return (
        f"learning_rate: {settings.learning_rate:g} suits {own} tokens a step, and this run takes "
        f"up to {batch}; square-root scaling, the rule for Adam, advises "
        f"{scaled_rate(settings.learning_rate, own, batch):.2g} (docs/scratch.md)"
    )
