"""Time the parts of a model on this rank: a decoder layer, the embeddings, the head with the loss.

Their weights are random, so that a model can be timed that fits no card and is on no disk here.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from hearth.config import Settings
from hearth.config.shape import Shape, shape_in
from hearth.data.rows import IGNORED, Batch
from hearth.model.divided import config_of
from hearth.model.stage import StageModel, drawn_stage
from hearth.node.probe import search, timed
from hearth.plan.placement import LayerSpeed
from hearth.plan.speed import Speed
from hearth.ranks.memory import is_out_of_memory, row_too_large

_UNCACHED = 30_000_000
"""Weights that fill the cache of any processor."""

_MOST_LAYERS = 8
"""Layers that are timed at most, of small models."""

_DOCUMENTS = 4
"""Documents in a packed row: attention is slower with several than with one."""


@dataclass(frozen=True)
class MeasuredLayers:
    """Measurement of a model's parts on one rank.

    Attributes:
        speed: seconds by micro-batch.
        saturated: as in `Measured`.
    """

    speed: LayerSpeed
    saturated: bool


def probe_layers(
    settings: Settings,
    folder: Path,
    device: torch.device,
    precision: str,
    most: int,
    autocast: Callable[[], AbstractContextManager[object]],
) -> MeasuredLayers:
    """Time the parts of the model of config.json in `folder`, with up to `most` rows.

    Raises `HearthError` if the model cannot be divided, or if one row of a layer does not fit.
    """
    settings, config = settings.at_most(), config_of(folder).get_text_config()
    count, vocabulary = config.num_hidden_layers, config.vocab_size

    def stage(layers: range) -> StageModel:
        return drawn_stage(settings, folder, device, precision, layers, count)

    def seconds(part: StageModel, size: int) -> float:
        batch = _rows(size, settings.sequence_length, vocabulary, settings.packing)
        return _seconds(part, batch, autocast)

    def timed_end(layers: range, sizes: tuple[int, ...]) -> Speed | None:
        try:
            part = stage(layers)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return None
        each = (timed(functools.partial(seconds, part, size), warm=False) for size in sizes)
        fitting = tuple(itertools.takewhile(lambda taken: taken is not None, each))
        part.release()
        return Speed(sizes[: len(fitting)], fitting) if fitting else None

    def timed_layer(part: StageModel) -> tuple[Speed | None, bool]:
        found = search(lambda size: seconds(part, size) / len(part.layers), most, part.release)
        part.release()
        return found

    # In a mixture of experts the first layers may have none; those in the middle are like most.
    several = _several(shape_in(folder), count)
    start = (count - several) // 2
    layer, saturated = timed_layer(stage(range(start, start + several)))
    if layer is None:
        raise row_too_large(settings.sequence_length)
    ends = (timed_end(layers, layer.sizes) for layers in (range(0), range(count, count)))
    return MeasuredLayers(LayerSpeed(layer, *ends), saturated)


def _several(shape: Shape | None, count: int) -> int:
    """Return the number of layers to time: as many as together do not stay in a processor's cache.

    In a stage each layer finds the cache full of the others.
    """
    if shape is None:
        return 1
    of_one = shape.linear_parameters // shape.num_hidden_layers
    return min(count, max(1, _UNCACHED // of_one), _MOST_LAYERS)


def _rows(size: int, length: int, vocabulary: int, packed: bool) -> Batch:
    """Return `size` full rows of random tokens."""
    ids = np.random.default_rng(0).integers(0, vocabulary, (size, length))
    documents = min(_DOCUMENTS, length // 2) if packed else 1
    lengths = [len(part) for part in np.array_split(np.arange(length), documents)]
    positions = np.tile(np.concatenate([np.arange(each) for each in lengths]), (size, 1))
    labels = np.where(positions == 0, IGNORED, ids)
    return Batch(ids, labels, positions, lengths * size)


def _seconds(
    stage: StageModel, batch: Batch, autocast: Callable[[], AbstractContextManager[object]]
) -> float:
    """Return the seconds of the forward and backward pass of a stage's layers alone.

    Of a stage without layers they are those of the embeddings, or of the head with the loss.
    """
    shape = (*batch.input_ids.shape, stage.hidden_size)
    embeds, heads = (not stage.layers and end for end in (stage.first, stage.last))
    given = None
    if not embeds:
        given = torch.randn(shape, device=stage.device, dtype=stage.hidden_dtype).requires_grad_()
    back = torch.randn(shape, device=stage.device, dtype=stage.hidden_dtype)
    _wait(stage.device)
    started = time.perf_counter()
    with autocast():
        if heads:
            result = stage.stage_loss(batch, given, batch.labels.size, ())
        else:
            result = stage.hidden(batch, given, ())
    if result.requires_grad:
        result.backward(None if heads else back.to(result.dtype))
    stage.network.zero_grad(set_to_none=False)
    _wait(stage.device)
    return time.perf_counter() - started


def _wait(device: torch.device) -> None:
    """Wait until a GPU has done its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
