"""A process that computes with one backend on its own device, and writes the results to a file.

A process of its own for each, since Unsloth rewrites transformers where it is imported.

    python compute.py VERB PRECISION OUT SETTINGS [SIZE …]

SETTINGS is JSON: the settings of a run. The rows are computed in micro-batches of these sizes.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hearth.config import resolve
from hearth.config.layout import Layout
from hearth.model.load import prime_backend


def main() -> None:
    """Compute what the command line asks for."""
    verb, chosen, out, given, *sizes = sys.argv[1:]
    settings = resolve(json.loads(given)).settings.at_most()
    layout = Layout.from_environment()
    prime_backend(settings, layout)  # before everything that imports transformers
    from hearth.model import precision
    from hearth.model.load import load_model
    from hearth.ranks.world import own_device

    torch.manual_seed(settings.seed)
    model = load_model(settings, Path(settings.model), own_device(), chosen)
    with torch.no_grad():  # an adapter that does something, the same in every backend
        for number, (_, parameter) in enumerate(sorted(model.trainable())):
            draw = torch.Generator().manual_seed(number)
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=draw))
    scaler = precision.loss_scaler(chosen, model.device)
    model.use_scaler(scaler)
    autocast = functools.partial(precision.autocast, chosen, model.device)
    compute = _VERBS[verb](model, autocast, scaler, settings, [int(size) for size in sizes])
    torch.save(compute, out)


def gradients(
    model: Any, autocast: Any, scaler: Any, settings: Any, sizes: list[int]
) -> dict[str, torch.Tensor]:
    """Return loss and gradients of the last rows, computed in micro-batches of these sizes.

    Packed rows of several documents come last.
    """
    rows = _rows(settings)
    own = np.arange(len(rows))[-sum(sizes) :]
    denominator = int(rows.label_tokens[own].sum())
    total = torch.zeros((), dtype=torch.float64)
    model.network.zero_grad()
    for numbers in np.split(own, np.cumsum(sizes)[:-1]):
        model.before_step()
        batch, seeds = rows.batch(numbers), numbers.tolist()
        torch.manual_seed(seeds[0])  # for dropout and noise, as the trainer does
        model.draw_noise(batch, seeds)
        with autocast():
            loss = model.loss(batch, denominator)
        scaler.scale(loss).backward()
        total += loss.detach().double().cpu()
    scale = scaler.get_scale()
    found = {name: learned.grad.float().cpu() / scale for name, learned in model.trainable()}
    return {"loss": total} | found


def isolation(model: Any, autocast: Any, *_: Any) -> dict[str, torch.Tensor]:
    """Return the loss of the second of two documents in a row.

    Once as it is, once with a token of the first changed, once with one of its own changed.
    """
    from hearth.data.rows import IGNORED, Batch

    def loss(change: int | None) -> torch.Tensor:
        ids = np.random.default_rng(0).integers(5, 200, (1, 300))
        if change is not None:
            ids[0, change] = 201
        labels = ids.copy()
        labels[0, :101] = IGNORED  # the first document, and the second's first token
        places = np.concatenate([np.arange(100), np.arange(200)])[None]
        model.before_step()
        with autocast(), torch.no_grad():
            return model.loss(Batch(ids, labels, places, [100, 200]), 199).double().cpu()

    return {"as it is": loss(None), "neighbour": loss(40), "itself": loss(140)}


def around_generation(model: Any, *more: Any) -> dict[str, dict[str, torch.Tensor]]:
    """Return the gradients before and after some tokens are generated, and those tokens' text."""
    before = gradients(model, *more)
    text = model.generate([70, 71, 72], 4)
    return {"before": before, "after": gradients(model, *more), "text": text}


def offloaded(model: Any, *more: Any) -> dict[str, torch.Tensor]:
    """Return the gradients where Unsloth keeps the layers' inputs in host memory, as large ones."""
    from unsloth_zoo import gradient_checkpointing

    gradient_checkpointing.MINIMUM_SIZE = 0
    return gradients(model, *more)


def out_of_memory(model: Any, *more: Any) -> dict[str, Any]:
    """Return the gradients after one forward pass that ran out of memory, and after another.

    With them comes the number of layers that Unsloth counts.
    """
    from unsloth_zoo import gradient_checkpointing

    def fail(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    found = []
    for _ in range(2):
        hook = model.network.get_base_model().model.layers[-1].register_forward_pre_hook(fail)
        try:
            offloaded(model, *more)
        except torch.OutOfMemoryError:
            model.release()
        hook.remove()
        found.append(offloaded(model, *more))
    layers = gradient_checkpointing.LAST_GC_INDEX
    return {"before": found[0], "after": found[1], "layers": layers}


def _rows(settings: Any) -> Any:
    from transformers import AutoTokenizer

    from hearth.data.load import load_data

    with tempfile.TemporaryDirectory() as cache:
        return load_data(
            settings.dataset,
            AutoTokenizer.from_pretrained(settings.model),
            sequence_length=settings.sequence_length,
            packing=settings.packing,
            held_out=0,
            seed=1,
            cache=Path(cache),
        ).train


_VERBS = {
    "gradients": gradients,
    "offloaded": offloaded,
    "isolation": isolation,
    "generation": around_generation,
    "out-of-memory": out_of_memory,
}

if __name__ == "__main__":
    main()
