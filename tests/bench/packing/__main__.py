"""Measure what packing saves against padding, on two real data sets.

    python -m tests.bench.packing

computes the gradients of some rows of each data set with the first layers of SmolLM2, in one
process with one thread: packed, padded to the longest of a micro-batch, padded to 2048 tokens. It
downloads a corpus of small talk (a Python package of 0.3 MB, BSD licence) into a temporary folder.
It takes about three minutes.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from hearth.config import load_preset, resolve
from hearth.config.layout import Layout
from hearth.data.load import load_data
from hearth.data.rows import Rows
from hearth.model.backend import TrainableModel
from hearth.model.fetch import fetch_model
from hearth.model.load import load_model
from tests.bench.command import Bench, turns
from tests.bench.packing.data import CORPUS, SHIPPED, make_corpus
from tests.bench.packing.measure import PaddedRows, cost
from tests.bench.packing.report import LENGTH, WAYS, table

MODEL = "smollm2-135m"
LAYERS = 6
"""Of 30, which are all alike: enough to measure what a token costs, in minutes."""


def first_layers(folder: Path) -> Path:
    """Write the model with its first layers only to `folder`, and return it."""
    source = load_preset(MODEL).source(MODEL)
    whole = fetch_model(source, Layout.from_environment().models).path
    model = AutoModelForCausalLM.from_pretrained(whole, num_hidden_layers=LAYERS)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(whole).save_pretrained(folder)
    return folder


def rows_of(way: str, load: Callable[[int, bool], Rows]) -> tuple[Rows | PaddedRows, int, int]:
    """Return the rows of a way, how many of them a turn takes, and how many at once."""
    if way == "packed":
        return load(LENGTH, True), 1, 1
    if way == "packed to half":
        return load(LENGTH // 2, True), 1, 1
    if way == "padded to the longest":
        return load(LENGTH, False), 8, 8
    return PaddedRows(load(LENGTH, False), LENGTH), 2, 1


def measured(
    model: TrainableModel, dataset: str | Path, cache: Path, repeat: int
) -> dict[str, list[dict[str, float]]]:

    def load(length: int, packing: bool) -> Rows:
        return load_data(
            dataset, model.tokenizer, sequence_length=length, packing=packing, held_out=0.1,
            seed=1, cache=cache,
        ).train  # fmt: skip

    ways = {way: rows_of(way, load) for way in WAYS}
    costs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    print(f"bench: {dataset}", flush=True)
    for turn in turns(repeat):
        for way, (rows, count, at_once) in ways.items():
            own = np.random.default_rng(turn).permutation(len(rows.tokens))[:count]
            costs[way].append(cost(model, rows, own, at_once))
    return costs


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    corpus = make_corpus(folder)
    path = first_layers(folder / "model")
    settings = resolve({"model": str(path), "lora_rank": 8}).settings
    model = load_model(settings, path, torch.device("cpu"), "fp32")
    sets: dict[str, Any] = {
        called: measured(model, dataset, folder / "tokens", given.repeat)
        for called, dataset in ((SHIPPED, SHIPPED), (CORPUS, corpus))
    }
    return {"model": MODEL, "layers": LAYERS, "sets": sets}


if __name__ == "__main__":
    bench = Bench("packing", __doc__, table)
    bench.option("--repeat", type=int, default=3, help="turns a data set (default: 3)")
    bench.run(measure)
