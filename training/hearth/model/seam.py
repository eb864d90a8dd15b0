"""The seam between the trainer and what computes the model: Unsloth or Transformers + PEFT.

The trainer knows only `TrainableModel`. Which side stands behind it is chosen here, so that the
same loop runs on a GPU with Unsloth's kernels and on a CPU without.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hearth.config import Settings
from hearth.data import Batch
from hearth.errors import ConfigError


class TrainableModel(ABC):
    """A causal language model with a LoRA adapter; only the adapter learns."""

    def __init__(self, network: Any, tokenizer: Any, device: torch.device) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.device = device

    @abstractmethod
    def loss(self, batch: Batch, denominator: int) -> torch.Tensor:
        """Return the sum of the token losses of `batch` divided by `denominator`, a scalar.

        With the step's global number of labelled tokens as the denominator, the sum over all
        micro-batches and ranks is the mean token loss of the global batch, however it was cut.
        """

    @abstractmethod
    def generation_mode(self) -> None:
        """Prepare for `generate`; `training_mode` undoes it."""

    @abstractmethod
    def training_mode(self) -> None:
        """Prepare for `loss`."""

    def before_step(self) -> None:  # noqa: B027  Most backends have nothing to do here.
        """Do what the backend must do between two steps."""

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield name and parameter of everything that learns, in a fixed order."""
        return ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)

    @torch.no_grad()
    def generate(self, prompt: list[int], max_new_tokens: int) -> str:
        """Return the greedy continuation of `prompt` (token ids) as text."""
        self.generation_mode()
        ids = torch.tensor([prompt], device=self.device)
        output = self.network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            # Small models repeat themselves for ever when they always take the likeliest token.
            repetition_penalty=1.15,
            temperature=None,
            top_p=None,
            top_k=None,
            use_cache=True,
            pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
        )
        self.training_mode()
        return self.tokenizer.decode(output[0, len(prompt) :], skip_special_tokens=True).strip()

    def save_adapter(self, folder: Path, base: str) -> None:
        """Write the adapter to `folder` in PEFT's format, for the base model named `base`."""
        self.network.peft_config["default"].base_model_name_or_path = base
        self.network.save_pretrained(folder, save_embedding_layers=False)


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


def backend_here(wanted: str, device: torch.device) -> str:
    """Return the backend this rank uses for the setting `wanted`. Raises as `choose_backend`."""
    return choose_backend(
        wanted, device.type == "cuda", importlib.util.find_spec("unsloth") is not None
    )


def load_model(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> TrainableModel:
    """Return the model in `folder` with a fresh adapter on `device`.

    `precision` is what all ranks agreed on: bf16, fp16, fp32 or fp64.
    """
    if backend_here(settings.backend, device) == "unsloth":
        from hearth.model.unsloth_backend import load
    else:
        from hearth.model.transformers_backend import load
    return load(settings, folder, device, precision)
