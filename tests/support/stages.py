"""The stages of a model in one process, chained by hand: no ranks, no schedule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from hearth.config import Settings
from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel
from hearth.model.stage import StageModel, load_stage

CPU = torch.device("cpu")


def load_stages(
    settings: Settings, precision: str, *cut: int, device: torch.device = CPU
) -> list[StageModel]:
    """Return the stages of a model that end before these layers; the last is their number."""
    stages = []
    for start, stop in zip((0, *cut), cut, strict=False):
        torch.manual_seed(settings.seed)
        layers = range(start, stop)
        stages.append(
            load_stage(settings, Path(settings.model), device, precision, layers, cut[-1])
        )
    return stages


def stir(model: TrainableModel) -> None:
    """Give the adapter values that do something, by name, so that stages and the whole agree."""
    with torch.no_grad():
        for name, parameter in model.trainable():
            draw = torch.Generator().manual_seed(sum(name.encode()))
            drawn = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            parameter.copy_(0.05 * drawn)


def chained_loss(
    stages: Sequence[StageModel], batch: Batch, denominator: int, seeds: Sequence[int]
) -> float:
    """Return the loss of `batch`, and add its gradients to those of all stages."""
    hidden, borders = None, []
    for stage in stages[:-1]:
        end = stage.hidden(batch, hidden, seeds)
        torch.rand(1)  # the next stage is on another node, whose random numbers are others
        assert end.dtype == stage.hidden_dtype and end.shape[-1] == stage.hidden_size
        hidden = end.detach().requires_grad_()
        borders.append((end, hidden))
    loss = stages[-1].stage_loss(batch, hidden, denominator, seeds)
    loss.backward()
    for end, start in reversed(borders):
        end.backward(start.grad)
    return loss.item()


def packed_batch(vocabulary: int, *rows: Sequence[int], seed: int = 0) -> Batch:
    """Return rows of documents of these lengths, as packing makes them, shorter rows padded."""
    drawn = np.random.default_rng(seed)
    width = max(map(sum, rows))
    ids = drawn.integers(0, vocabulary, (len(rows), width))
    labels, positions, lengths = ids.copy(), np.zeros_like(ids), []
    for line, documents in enumerate(rows):
        end = 0
        for length in documents:
            labels[line, end] = IGNORED
            positions[line, end : end + length] = np.arange(length)
            end += length
        labels[line, end:] = IGNORED
        positions[line, end:] = np.arange(width - end)
        lengths += [*documents, *([width - end] if width > end else [])]
    return Batch(ids, labels, positions, lengths)


def gradients(*models: TrainableModel) -> dict[str, torch.Tensor]:
    """Return the gradients of the adapter, over all stages, by name, and clear them."""
    found = {}
    for model in models:
        for name, parameter in model.trainable():
            assert name not in found
            found[name], parameter.grad = parameter.grad.clone(), None
    return found
