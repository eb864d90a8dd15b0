"""Lengths of data sets in tokens, and the steps of a run on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hearth.config import Settings, load_preset
from hearth.data.packing import pack
from hearth.plan.row_order import RowOrder
from hearth.plan.steps import Lengths, settle_rows, settle_warmup

SHIPPED = [103] * 260 + [141] * 10
"""Training examples of homelab-qa, about as the tokenizer of SmolLM2 makes them."""


def short_chats(count: int) -> list[int]:
    """Return the lengths of `count` short chats without the tenth that is held out."""
    return np.random.default_rng(0).integers(40, 81, count * 9 // 10).tolist()


def chats(lengths: Sequence[int]) -> Lengths:
    return Lengths(np.array(lengths, np.int64), np.empty(0, np.int64))


def texts(lengths: Sequence[int]) -> Lengths:
    return Lengths(np.empty(0, np.int64), np.array(lengths, np.int64))


def of_preset(name: str) -> Settings:
    return Settings(model=name, **load_preset(name).settings)


def settled(
    settings: Settings, lengths: Lengths, limit: int | None = None
) -> tuple[Settings, int, int]:
    """Return `settings` without `auto`, and the number of their steps and rows, really packed."""
    settings = settings.model_copy(update=settle_rows(settings, lengths, limit))
    longest = settings.sequence_length
    kept = lengths.chats[lengths.chats <= longest]
    cut = [np.full(math.ceil((text - 1) / (longest - 1)), longest) for text in lengths.texts]
    pieces = np.concatenate([kept, *cut]).astype(np.int64)
    rows = len(pack(pieces, longest, 1)) if settings.packing else len(pieces)
    order = RowOrder(rows, settings.global_batch, seed=1)
    steps = order.steps(settings.epochs, settings.max_steps)
    return settings.model_copy(update=settle_warmup(settings, steps)), steps, rows
