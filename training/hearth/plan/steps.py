"""The steps of a run: their size, number and learning rates, and warnings about them. Pure.

Settings that are `auto` are resolved from the data alone. All ranks have the same data, so they
resolve the same values without talking. Many data get the largest steps and one pass. Few data get
smaller steps and up to five passes, since a handful of large steps teaches a model nothing. A step
keeps several rows where it can, for several ranks. `tests.bench.defaults` measures the result.

The learning rates have the shapes of Transformers' schedules, except the warm-up: it begins above
0, since a step at rate 0 learns nothing. A decay reaches 0 after the last step, not at it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearth.base.text import counted
from hearth.config import Settings, shown
from hearth.config.settings import LARGEST

_WANTED = 250
"""Steps that a run has at least, where its steps can be that small."""

_ENOUGH = 50
"""Steps below which a step has fewer than `_SEVERAL` rows."""

_SEVERAL = 4
"""Rows of a step that keep a few unequal ranks busy."""

_TOKENS, _PASSES = 1 << 19, 5
"""Tokens that a run takes at least, if that needs no more passes over its data than these."""

_FEWEST, _FEW_PASSES = 1 << 14, 3
"""Passes over data of fewer tokens than the first number, which are known by heart sooner."""

_CONTEXT = 256
"""Tokens of the shortest row that a longer plain text is cut to."""

_LONGEST_WARMUP = 100


@dataclass(frozen=True)
class Lengths:
    """Tokens of each training document, int64: chats stay whole, plain texts may be cut."""

    chats: np.ndarray
    texts: np.ndarray

    def within(self, longest: int) -> Lengths:
        """Return the lengths without the chats that are longer than `longest` tokens."""
        return Lengths(self.chats[self.chats <= longest], self.texts)

    @property
    def tokens(self) -> int:
        """Tokens of all documents."""
        return int(self.chats.sum() + self.texts.sum())

    def pieces(self, longest: int) -> int:
        """Return the number of pieces of at most `longest` tokens, each in a row of its own."""
        cut = np.ceil(np.maximum(self.texts - 1, 1) / (longest - 1))
        return max(1, len(self.chats) + int(cut.sum()))

    def packed(self, longest: int) -> int:
        """Return the least number of rows of `longest` tokens that hold all documents."""
        alone = int((self.chats > longest // 2).sum())
        return max(1, alone, math.ceil(self.tokens / longest))


@dataclass(frozen=True)
class _StepForm:
    """Rows of a size, and how many of them make a step.

    Attributes:
        tokens: tokens of a step.
        steps: steps of the run, estimated from the lengths.
    """

    sequence_length: int
    packing: bool
    global_batch: int
    tokens: float
    steps: float

    @property
    def size(self) -> tuple[float, bool, int]:
        """The sort key by the size of a step: tokens, then packed rows, then more rows."""
        return self.tokens, self.packing, self.global_batch


def settle_rows(
    settings: Settings, lengths: Lengths | None, limit: int | None = None
) -> dict[str, Any]:
    """Return the values of those settings of rows, steps and epochs that are `auto`.

    `lengths` are None for a stream and for token shards, whose steps are the largest. `limit` is
    the number of positions that the model knows. The warm-up is left to `settle_warmup`.
    """
    automatic = LARGEST.keys() & set(settings.automatic_steps)
    cap = min(int(LARGEST["sequence_length"]), limit or math.inf)
    if lengths is None:
        found = dict(LARGEST) | {"sequence_length": cap}
    else:
        epochs = _epochs(settings, lengths)
        form = _chosen(list(_forms(settings, lengths, cap, epochs)))
        found = vars(form) | {"epochs": epochs}
    return {name: found[name] for name in LARGEST if name in automatic}


def settle_warmup(settings: Settings, steps: int) -> dict[str, Any]:
    """Return the warm-up of a run of `steps` if it is `auto`, else {}."""
    if settings.warmup_steps != "auto":
        return {}
    return {"warmup_steps": min(steps // 10, _LONGEST_WARMUP)}


def _epochs(settings: Settings, lengths: Lengths) -> float:
    """Return the passes over data with these lengths."""
    if settings.epochs != "auto":
        return settings.epochs
    most = _FEW_PASSES if lengths.tokens < _FEWEST else _PASSES
    return float(min(most, math.ceil(_TOKENS / max(1, lengths.tokens))))


def _chosen(forms: list[_StepForm]) -> _StepForm:
    """Return the form with the largest steps that are enough in number."""
    several = [form for form in forms if form.global_batch >= _SEVERAL] or forms
    if wanted := [form for form in several if form.steps >= _WANTED]:
        return max(wanted, key=lambda form: form.size)
    for few in (several, forms):
        best = max(few, key=lambda form: (form.steps, form.size))
        if best.steps >= _ENOUGH:
            break
    return best


def _forms(settings: Settings, lengths: Lengths, cap: int, epochs: float) -> Iterator[_StepForm]:
    """Return the forms that the settings leave open, for rows of at most `cap` tokens."""
    packings = [True, False] if settings.packing == "auto" else [settings.packing]
    batches = [16, 8, 4, 2] if settings.global_batch == "auto" else [settings.global_batch]
    for packing, batch in itertools.product(packings, batches):
        for longest in _row_lengths(settings, lengths, cap):
            within = lengths.within(longest)
            rows = within.packed(longest) if packing else within.pieces(longest)
            yield _StepForm(
                longest,
                packing,
                batch,
                tokens=batch * (longest if packing else within.tokens / rows),
                steps=epochs * math.ceil(rows / batch),
            )


def _row_lengths(settings: Settings, lengths: Lengths, cap: int) -> list[int]:
    """Return the lengths of rows to choose from: none that drops a chat which `cap` has room for.

    Plain texts are cut to no less than `_CONTEXT` tokens.
    """
    if settings.sequence_length != "auto":
        return [settings.sequence_length]
    chat = int(lengths.chats.max(initial=8))
    text = min(_CONTEXT, int(lengths.texts.max(initial=8)))
    shortest = 1 << (max(chat, text) - 1).bit_length()
    doubled = itertools.takewhile(lambda length: length < cap, (shortest << n for n in range(11)))
    return [*doubled, cap]


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
