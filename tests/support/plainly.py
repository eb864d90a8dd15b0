"""Evaluate Hearth's models without Hearth's trainer: plain torch, a row at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from hearth.data.load import load_data
from support.tiny_model import make_tokenizer


def held_out_loss(model: Any, data: Path, cache: Path) -> float:
    """Return the mean loss of `model` over the learned tokens of the held-out rows of `data`."""
    rows = load_data(
        data, make_tokenizer(), sequence_length=96, packing=False, held_out=0.1, seed=1, cache=cache
    ).held_out
    total = 0.0
    for row in range(len(rows)):
        batch = rows.batch([row])
        with torch.no_grad():
            out = model(input_ids=torch.as_tensor(batch.input_ids)).logits[0, :-1]
        labels = torch.as_tensor(batch.labels)[0, 1:]
        total += F.cross_entropy(out, labels, reduction="sum").item()
    return total / int(rows.label_tokens.sum())
