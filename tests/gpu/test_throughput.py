"""Tokens a second of both backends: printed, and kept where HEARTH_GPU_FIGURES names a file."""

from __future__ import annotations

import json
import os
import statistics
from pathlib import Path

import pytest
import torch
from support.llama import make_llama, make_texts
from support.ranks import figures

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1800)]

LENGTH = 1024
SKIPPED = 4  # steps that pay for compiling


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A model of 0.6 billion parameters, as wide and as deep as Llama 3.2 1B."""
    return make_llama(tmp_path_factory.mktemp("large") / "llama", hidden=2048, layers=16)


def test_unsloth_is_no_slower_than_transformers(trained, large, tmp_path):
    data = make_texts(tmp_path / "long.jsonl", 400, LENGTH)
    speeds = {}
    for backend in ("unsloth", "transformers"):
        folder, _ = trained(
            backend,
            1,
            *("--backend", backend, "--precision", "bf16", "--model", large, "--dataset", data),
            *("--sequence-length", LENGTH, "--global-batch", 16, "--max-steps", SKIPPED + 8),
            *("--micro-batch", "auto"),
        )
        speeds[backend] = statistics.median(figures(folder, "step", "tokens_per_second")[SKIPPED:])
    found = {"card": torch.cuda.get_device_name(), "tokens_per_second": speeds}
    print(json.dumps(found))
    if kept := os.environ.get("HEARTH_GPU_FIGURES"):
        Path(kept).write_text(json.dumps(found, indent=1) + "\n")
    assert speeds["unsloth"] >= speeds["transformers"]
