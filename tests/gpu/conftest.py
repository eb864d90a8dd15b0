"""Shared fixtures of the GPU tests. Without a GPU none of them runs and nothing is created."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from support.llama import make_texts
from support.ranks import COMPUTE, environment, python, succeeded, train
from support.supervisors import TRAINING

from hearth.base.nvml import Cards
from hearth.node.facts import software_here
from hearth.ranks.world import has_nvidia_gpu

LENGTH = 512
"""Tokens of a row in these tests."""

_PASSED_ON = ("LD_LIBRARY_PATH", "CUDA_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


@pytest.fixture(scope="session", autouse=True)
def gpu() -> None:
    """Skip everything here on a computer without an NVIDIA GPU, before anything is made for it."""
    if not has_nvidia_gpu():
        pytest.skip("there is no NVIDIA GPU")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory, gpu: None) -> Path:
    """A small Llama, made by a process of its own: to make one takes hold of the card."""
    folder = tmp_path_factory.mktemp("models")
    makes = "import support.llama as it; it.make_llama(it.Path('llama'), hidden=256, layers=4)"
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", makes],
        cwd=folder,
        env=environment(folder) | {"PYTHONPATH": f"{TRAINING}:{tests}"},
    )
    assert done.returncode == 0
    return folder / "llama"


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_texts(tmp_path_factory.mktemp("data") / "texts.jsonl", 120, LENGTH)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment variables that give a process one card and shared caches."""
    own = {
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path_factory.mktemp("inductor")),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
    }
    return own | {name: os.environ[name] for name in _PASSED_ON if name in os.environ}


@pytest.fixture
def trained(tmp_path: Path, llama: Path, texts: Path, kernels: dict[str, str]) -> Callable:
    """Return a function that trains in ranks on the card; it returns the run's folder and log."""
    common = [
        *("--model", llama, "--dataset", texts, "--sequence-length", LENGTH, "--held-out", 0),
        *("--learning-rate", 1e-3, "--global-batch", 8, "--split", "equal", "--micro-batch", 4),
        *("--optimizer", "adamw", "--max-steps", 8, "--wandb", "off", "--eval-held-out", "off"),
    ]

    def run(name: str, ranks: int, *changed: object) -> tuple[Path, str]:
        words = (*common, "--run-name", name, *changed)
        done = succeeded(train(tmp_path, ranks, *words, timeout=600, **kernels))
        return tmp_path / "runs" / name, done.stdout

    return run


@pytest.fixture
def computed(tmp_path: Path, llama: Path, texts: Path, kernels: dict[str, str]) -> Callable:
    """Return a function that runs `compute.py` in its own process and loads the result."""

    def compute(verb: str, backend: str, precision: str, *more: object) -> dict[str, torch.Tensor]:
        out = tmp_path / f"{verb}-{backend}-{precision}.pt"
        given = {"model": llama, "dataset": texts, "backend": backend, "sequence_length": LENGTH}
        words = (COMPUTE, verb, precision, out, json.dumps(given, default=str), *more)
        succeeded(python(tmp_path, *words, timeout=600, **kernels))
        return torch.load(out, weights_only=True)

    return compute


@pytest.fixture
def keep() -> Callable[[str, object], None]:
    """Return a function that prints a figure and keeps it where HEARTH_GPU_FIGURES names a file."""

    def keep(name: str, figure: object) -> None:
        print(f"{name}: {json.dumps(figure)}")
        if place := os.environ.get("HEARTH_GPU_FIGURES"):
            with open(place, "a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                found = json.loads(file.read() or "{}")
                found["date"] = f"{datetime.now(UTC):%Y-%m-%d}"
                cards = Cards.open()
                assert cards
                found |= {"card": cards.names[0], "software": software_here()}
                cards.close()
                found.setdefault("figures", {})[name] = figure
                file.seek(0)
                file.truncate()
                file.write(json.dumps(found, indent=1) + "\n")

    return keep
