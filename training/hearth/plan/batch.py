"""Describe the steps of a run before it starts, and warn of those that teach it little. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hearth.base.text import counted
from hearth.config import Settings, shown
from hearth.plan.schedule import warmup_of

FEW_STEPS = 20
"""Steps below which a run is warned of."""

_ADAM = ("auto", "adamw", "adamw_8bit")


def describe_batch(settings: Settings, rows: int, tokens: int, steps: int) -> str:
    """Describe the `steps` of a run whose data are `rows` that hold `tokens` in all."""
    size = min(settings.global_batch, rows)
    about = "" if tokens == rows * settings.sequence_length else "about "
    epochs = "" if settings.max_steps else f"{_counted(settings.epochs, 'epoch')} = "
    return (
        f"batch: {counted(size, 'row')} a step, {about}{round(tokens * size / rows)} tokens; "
        f"{epochs}{counted(steps, 'step')}, {_warmup(settings, steps)}"
    )


def _warmup(settings: Settings, steps: int) -> str:
    """Describe the warm-up of a run of `steps`."""
    warmup = warmup_of(steps, settings)
    return f"warm-up {warmup}" if warmup else "no warm-up"


def _counted(number: float, noun: str) -> str:
    """Return `number`, which may be a fraction, with its noun."""
    return f"{number:g} {noun}{'s' * (number != 1)}"


def describe_automatic(settings: Settings, names: Iterable[str], data: str) -> str | None:
    """Describe the settings `names`, which were `auto` and are resolved for the `data`."""
    values = {
        name: getattr(settings, name)
        for name in names
        if not (name == "epochs" and settings.max_steps)
    }
    text = ", ".join(
        f"{name}={f'{value:g}' if isinstance(value, float) else shown(value)}"
        for name, value in values.items()
    )
    return f"auto: {text} (for {data}; each can be set)" if text else None


def warnings(settings: Settings, rows: int, steps: int) -> list[str]:
    """Return a warning for a run of too few `steps`, and for one that is mostly warm-up.

    `rows` is the number of rows of its data.
    """
    found = []
    if steps < FEW_STEPS:
        found.append(
            f"WARNING: {counted(steps, 'step')} can hardly teach the model anything: "
            f"{_more_steps(settings, rows)}"
        )
    warmup = warmup_of(steps, settings)
    if warmup > steps / 2:
        found.append(
            f"WARNING: the learning rate is below learning_rate={settings.learning_rate:g} in the "
            f"first {counted(warmup, 'step')} of {steps}, since warmup_steps="
            f"{settings.warmup_steps}; set warmup_steps={steps // 10} (by hand --warmup-steps "
            f"{steps // 10})"
        )
    return found


def _more_steps(settings: Settings, rows: int) -> str:
    """Return the setting that gives a run more steps, and how to set it."""
    if settings.max_steps:
        return "leave max_steps out, or set a larger one (by hand --max-steps)"
    ways = []
    if (batch := min(settings.global_batch, rows)) > 1:
        smaller = max(1, batch // 4)
        ways.append(f"set global_batch={smaller} (by hand --global-batch {smaller})")
    more = math.ceil(settings.epochs * 2 + 1)
    ways.append(f"set epochs={more} (by hand --epochs {more})")
    return f"{' or '.join(ways)}, or add examples"


def scaled_rate(rate: float, tuned: int, batch: int) -> float:
    """Return the learning rate for `batch` tokens a step where `rate` suits `tuned` tokens.

    The square-root scaling rule for Adam: Malladi et al. 2022, arXiv:2205.10287.
    """
    return rate * math.sqrt(batch / tuned)


def advised_rate(settings: Settings, tuned: Settings) -> str | None:
    """Return a hint at the learning rate for the batch of `settings`, or None if none is due.

    It is due where the learning rate is still that of `tuned`, the settings of a preset, and the
    batch is not. Nothing is known of a preset whose batch is `auto`, of averaged local steps, nor
    of optimizers other than Adam's.
    """
    if {"global_batch", "sequence_length"} & set(tuned.automatic_steps):
        return None
    batch, own = (each.global_batch * each.sequence_length for each in (settings, tuned))
    same = ("learning_rate", "lora", "scratch", "sync_every")
    if batch == own or any(getattr(settings, name) != getattr(tuned, name) for name in same):
        return None
    if not {settings.optimizer, tuned.optimizer} <= set(_ADAM):
        return None
    return (
        f"learning_rate: {settings.learning_rate:g} suits {own} tokens a step, and this run takes "
        f"up to {batch}; square-root scaling, the rule for Adam, advises "
        f"{scaled_rate(settings.learning_rate, own, batch):.2g} (docs/train.md)"
    )
