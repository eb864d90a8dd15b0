"""Real Unsloth and its real kernels on the CPU, beside Transformers without them.

Ranks are forked from a process that has imported Unsloth from .venv-unsloth. Only an NVIDIA GPU is
stood in for, by `support/stand_in_gpu`; Triton's interpreter computes the kernels.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.llama import make_texts
from support.ranks import COMPUTE, Origin, succeeded, train_forked
from support.ranks import environment as by_hand
from support.tiny_model import make_model
from support.unsloth_ranks import LENGTH, PYTHON, UNSLOTH, variables
from support.waiting import HANG


@pytest.fixture(scope="session", autouse=True)
def made() -> None:
    """Skip everything here without its environment; where CI=true, fail."""
    if not Path(PYTHON).exists():
        stop = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        stop("there is no .venv-unsloth; scripts/test makes it")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_texts(tmp_path_factory.mktemp("data") / "texts.jsonl", 24, LENGTH)


@pytest.fixture(scope="session")
def computed(tmp_path_factory: pytest.TempPathFactory, texts: Path) -> Callable:
    """Return a function that runs `support/compute.py` as a rank and loads the result.

    Tests that compare with the same gradients have them computed once.
    """
    known: dict[tuple[object, ...], dict[str, torch.Tensor]] = {}

    def compute(verb: str, backend: str, precision: str, model: Path, *sizes: int, **settings):
        wanted = (verb, backend, precision, model, sizes, *sorted(settings.items()))
        if wanted not in known:
            known[wanted] = run(verb, backend, precision, model, *sizes, **settings)
        return known[wanted]

    def run(verb: str, backend: str, precision: str, model: Path, *sizes: int, **settings):
        folder = tmp_path_factory.mktemp("computed")
        out = folder / "computed.pt"
        common = {"model": model, "dataset": texts, "sequence_length": LENGTH, "backend": backend}
        given = json.dumps(common | {"lora_rank": 4} | settings, default=str)
        origin = UNSLOTH if backend == "unsloth" else Origin()
        words = (verb, precision, out, given, *sizes)
        done = train_forked(folder, 1, *words, script=COMPUTE, origin=origin)
        succeeded(done)
        return torch.load(out, weights_only=True)

    return compute


@pytest.fixture
def stood_in(tmp_path: Path) -> Callable:
    """Return a function that runs Python code in a process of its own, on such cards."""

    def run(code: str, cards: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [PYTHON, "-c", code],
            cwd=tmp_path,
            env=by_hand(tmp_path) | variables(cards) | changes,
            capture_output=True,
            text=True,
            timeout=HANG,
        )

    return run
