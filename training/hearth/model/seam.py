"""The seam between the trainer and what computes the model: Unsloth or Transformers + PEFT.

The trainer knows only `TrainableModel`; which side stands behind it is chosen in `load`. So the
same loop runs on a GPU with Unsloth's kernels and on a CPU without.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from hearth.data import Batch


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

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:  # noqa: B027  As above.
        """Take note of the loss scaler, where the backend computes gradients ahead of it."""

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
