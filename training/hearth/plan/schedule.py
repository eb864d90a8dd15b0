"""The learning rate of each step, as a part of its peak. Pure.

The shapes are those of Transformers' schedules, but for the warm-up: it begins above 0, since a
step at rate 0 learns nothing. A decay reaches 0 after the last step, not at it.
"""

from __future__ import annotations

import math

from hearth.config import Settings


def rate_at(step: int, steps: int, settings: Settings) -> float:
    """Return the learning rate of 0-based `step` of `steps`, divided by the peak learning rate."""
    warmup = warmup_of(steps, settings)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if settings.schedule in ("constant", "constant_with_warmup"):
        return 1.0
    decay = steps - warmup
    if settings.schedule == "wsd":
        # A run too short for both phases gives the warm-up its steps.
        decay = min(round(steps * settings.decay_fraction), decay)
    done = max(0, step - (steps - decay)) / max(1, decay) if step < steps else 1.0
    if settings.schedule == "wsd":
        return 1 - math.sqrt(done)
    return 1 - done if settings.schedule == "linear" else (1 + math.cos(math.pi * done)) / 2


def warmup_of(steps: int, settings: Settings) -> int:
    """Return the number of the first steps whose rate is below the peak; at most all `steps`."""
    return 0 if settings.schedule == "constant" else min(settings.warmup_steps, steps)
