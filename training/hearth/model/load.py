"""Choice of the backend, and loading of the model with it."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from hearth.base.entry import hush_imports, loading
from hearth.base.errors import CheckpointError, ConfigError, ModelError
from hearth.config import Settings
from hearth.config.layout import Layout
from hearth.model.backend import TrainableModel
from hearth.model.loaded import check_finite
from hearth.model.unsloth_environment import prepare_environment
from hearth.ranks.world import has_nvidia_gpu, own_device


def backend_here(settings: Settings, device: torch.device) -> str:
    """Return the backend of this rank: `unsloth` or `transformers`.

    Raises `ConfigError` if the user chose Unsloth and it cannot run: a silent fallback would
    train at a fraction of the expected speed.
    """
    wanted, gpu = settings.backend, device.type == "cuda"
    installed = importlib.util.find_spec("unsloth") is not None
    if wanted == "unsloth" and not gpu:
        raise ConfigError(
            "backend: unsloth needs an NVIDIA GPU and this node has none that torch can use; "
            "take backend=auto or backend=transformers"
        )
    if wanted == "unsloth" and not installed:
        raise ConfigError(
            "backend: unsloth is not installed on this node; install requirements/gpu.lock or "
            "take backend=transformers"
        )
    if wanted == "auto":
        return "unsloth" if gpu and installed and settings.suits_unsloth else "transformers"
    return wanted


def prime_backend(settings: Settings, layout: Layout) -> None:
    """Import Unsloth if it is this node's backend: it patches transformers and must come first.

    It asks for the current card while it is imported, so this rank's is set before. What
    torch.compile makes is kept for the next run, unless the user has named another folder.
    """
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(layout.compiled))
    if has_nvidia_gpu() and backend_here(settings, own_device()) == "unsloth":
        prepare_environment(layout.unsloth)
        hush_imports()
        importlib.import_module("hearth.model.unsloth_backend")


def _import_bitsandbytes() -> None:
    """Import bitsandbytes, if it is installed, before PEFT does, and without torch's compiler.

    It has two functions of its CPU path compiled, which loads all of Inductor: a fifth of the CPU
    time that a rank on a CPU takes to start. On CPUs its native library replaces both functions.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        return
    compiled = torch.compile
    torch.compile = lambda function, **_: function
    try:
        importlib.import_module("bitsandbytes")
    finally:
        torch.compile = compiled


def import_backend(name: str) -> ModuleType:
    """Return the module of the backend `unsloth` or `transformers`."""
    with loading():
        if name == "transformers":
            _import_bitsandbytes()
        return importlib.import_module(f"hearth.model.{name}_backend")


def load_model(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> TrainableModel:
    """Return the model in `folder` on `device`, ready for training.

    The model gets a fresh adapter; with `lora: off` its own weights train, and with `scratch` those
    are drawn by torch's random numbers. `precision` is the same on all ranks: bf16, fp16, fp32 or
    fp64. Raises `ModelError` if the weights cannot be trained, or are not finite.
    """
    backend = import_backend(backend_here(settings, device))
    model = backend.load(settings, folder, device, precision)
    check_finite(model.network, folder)
    if settings.neftune:
        model.add_noise(settings.neftune)
    return model


def begin_with(model: TrainableModel, adapter: Path) -> None:
    """Have `model` go on from the weights in the file `adapter`, instead of a fresh adapter.

    Raises `ModelError` if they do not fit, or are not finite.
    """
    try:
        model.restore(adapter)
    except CheckpointError as error:
        raise ModelError(
            f"onto: {adapter} does not fit this model; take the adapter's own, by leaving model out"
        ) from error
    if not all(bool(weights.isfinite().all()) for _, weights in model.trainable()):
        raise ModelError(
            f"onto: {adapter} has weights that are NaN or infinite; take another run, or the "
            "adapter of one of its checkpoints"
        )


def load_layers(
    settings: Settings,
    folder: Path,
    device: torch.device,
    precision: str,
    layers: range,
    count: int,
) -> Any:
    """Return the `StageModel` with these `layers` of the model in `folder`, which has `count`.

    Raises `ModelError` as `load_model`, and if the model cannot be divided.
    """
    import_backend("transformers")  # first, see `_import_bitsandbytes`
    with loading():
        stage = importlib.import_module("hearth.model.stage")
    return stage.load_stage(settings, folder, device, precision, layers, count)
