"""Which backend computes a model, and loading the model with it."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import torch

from hearth.base.errors import ConfigError
from hearth.base.imports import loading
from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.ranks.world import has_nvidia_gpu


def choose_backend(wanted: str, gpu: bool, unsloth_installed: bool) -> str:
    """Return `unsloth` or `transformers`.

    Raises `ConfigError` where Unsloth was asked for by name and cannot run: falling back in
    silence would train at a fraction of the expected speed.
    """
    if wanted == "unsloth" and not gpu:
        raise ConfigError(
            "backend: unsloth needs an NVIDIA GPU and this node has none that torch can use; "
            "take backend=auto or backend=transformers"
        )
    if wanted == "unsloth" and not unsloth_installed:
        raise ConfigError(
            "backend: unsloth is not installed on this node; install requirements/gpu.lock or "
            "take backend=transformers"
        )
    if wanted == "auto":
        return "unsloth" if gpu and unsloth_installed else "transformers"
    return wanted


def backend_here(settings: Settings, device: torch.device) -> str:
    """Return the backend this rank uses. Raises as `choose_backend`.

    Where Unsloth does not suit the settings, `auto` is Transformers.
    """
    wanted = settings.backend
    if wanted == "auto" and not settings.suits_unsloth:
        return "transformers"
    return choose_backend(
        wanted, device.type == "cuda", importlib.util.find_spec("unsloth") is not None
    )


def prime_backend(settings: Settings) -> None:
    """Import Unsloth if it is the backend here: it must come before transformers, to patch it."""
    if has_nvidia_gpu() and backend_here(settings, torch.device("cuda")) == "unsloth":
        importlib.import_module("unsloth")


def _import_bitsandbytes() -> None:
    """Import bitsandbytes, if it is installed, before PEFT does, and without torch's compiler.

    It asks for two functions of its CPU path to be compiled, and so loads all of Inductor: a fifth
    of the CPU time in which a rank on a CPU starts. Its own library answers for them there.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        return
    compiled = torch.compile
    torch.compile = lambda function, **_: function
    try:
        importlib.import_module("bitsandbytes")
    finally:
        torch.compile = compiled


def load_model(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> TrainableModel:
    """Return the model in `folder` on `device`, ready to learn.

    With a fresh adapter, or with `lora: off` as it is, or with `scratch` drawn anew from torch's
    random numbers. `precision` is what all ranks agreed on: bf16, fp16, fp32 or fp64.

    Raises `ModelError` if its weights cannot learn.
    """
    with loading():
        if backend_here(settings, device) == "unsloth":
            from hearth.model.unsloth_backend import load
        else:
            _import_bitsandbytes()
            from hearth.model.transformers_backend import load
    return load(settings, folder, device, precision)
