"""Resolve the settings of a run's steps that are `auto`, from the data alone. Pure.

All ranks have the same data, so they resolve the same values without talking. Many data get the
largest steps and one pass. Few data get smaller steps and up to five passes, since a handful of
large steps teaches a model nothing. A step keeps several rows where it can, for several ranks.
`tests.bench.defaults` measures what that comes to.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearth.config import Settings
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
class _Form:
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


def _chosen(forms: list[_Form]) -> _Form:
    """Return the form with the largest steps of which there are enough."""
    several = [form for form in forms if form.global_batch >= _SEVERAL] or forms
    if wanted := [form for form in several if form.steps >= _WANTED]:
        return max(wanted, key=lambda form: form.size)
    for few in (several, forms):
        best = max(few, key=lambda form: (form.steps, form.size))
        if best.steps >= _ENOUGH:
            break
    return best


def _forms(settings: Settings, lengths: Lengths, cap: int, epochs: float) -> Iterator[_Form]:
    """Return the forms that the settings leave open, for rows of at most `cap` tokens."""
    packings = [True, False] if settings.packing == "auto" else [settings.packing]
    batches = [16, 8, 4, 2] if settings.global_batch == "auto" else [settings.global_batch]
    for packing, batch in itertools.product(packings, batches):
        for longest in _row_lengths(settings, lengths, cap):
            within = lengths.within(longest)
            rows = within.packed(longest) if packing else within.pieces(longest)
            yield _Form(
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
