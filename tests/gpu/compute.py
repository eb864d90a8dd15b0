"""A process that computes with one backend on the card, and writes what came of it.

A process of its own for each, since Unsloth rewrites transformers where it is imported.

    python compute.py gradients|isolation BACKEND PRECISION MODEL DATA OUT [SIZE …]
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from hearth.config import resolve
from hearth.model.load import prime_backend

ROWS = 6


def main() -> None:
    verb, backend, chosen, folder, data, out, *sizes = sys.argv[1:]
    settings = resolve({"model": folder, "backend": backend, "sequence_length": 512}).settings
    prime_backend(settings)  # before everything that imports transformers
    from hearth.model import precision
    from hearth.model.load import load_model

    device = torch.device("cuda", 0)
    model = load_model(settings, Path(folder), device, chosen)
    with torch.no_grad():  # an adapter that does something, the same in every backend
        for number, (_, parameter) in enumerate(sorted(model.trainable())):
            draw = torch.Generator().manual_seed(number)
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=draw))
    autocast = functools.partial(precision.autocast, chosen, device)
    if verb == "isolation":
        found = losses_of_a_neighbour(model, autocast)
    else:
        found = gradients(model, autocast, data, [int(size) for size in sizes])
    torch.save(found, out)


def gradients(model, autocast, data: str, sizes: list[int]) -> dict[str, torch.Tensor]:
    """Return loss and gradients of six rows, computed in micro-batches of these sizes."""
    from transformers import AutoTokenizer

    from hearth.data.load import load_data

    with tempfile.TemporaryDirectory() as cache:
        rows = load_data(
            data, AutoTokenizer.from_pretrained(sys.argv[4]), sequence_length=512, packing=True,
            held_out=0, seed=1, cache=Path(cache),
        ).train  # fmt: skip
        denominator = int(rows.label_tokens[:ROWS].sum())
        total = torch.zeros((), dtype=torch.float64)
        for numbers in np.split(np.arange(ROWS), np.cumsum(sizes)[:-1]):
            model.before_step()
            with autocast():
                loss = model.loss(rows.batch(numbers), denominator)
            loss.backward()
            total += loss.detach().double().cpu()
    named = {name: learned.grad.float().cpu() for name, learned in model.trainable()}
    return {"loss": total} | named


def losses_of_a_neighbour(model, autocast) -> dict[str, torch.Tensor]:
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


if __name__ == "__main__":
    main()
