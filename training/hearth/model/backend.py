"""The trainer's interface to a model, implemented by Unsloth or by Transformers + PEFT.

The trainer knows only `TrainableModel`; `load` chooses the implementation. The same loop thus
runs on a GPU with Unsloth's kernels and on a CPU without them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from hearth.base.errors import CheckpointError
from hearth.base.files import level_modes
from hearth.data.rows import Batch
from hearth.model.noise import Noise
from hearth.ranks.memory import release

REPETITION_PENALTY = 1.15
"""With greedy decoding small models repeat themselves endlessly."""

GREEDY: dict[str, Any] = {
    "do_sample": False,
    "repetition_penalty": REPETITION_PENALTY,
    "temperature": None,
    "top_p": None,
    "top_k": None,
}
"""Arguments of Transformers' `generate` for the answers that a run shows, greedy ones."""


def adapter_tensors(place: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of an adapter in PEFT's format, in a folder or a safetensors file."""
    from peft import load_peft_weights  # late: Unsloth must have been imported before it
    from safetensors.torch import load_file

    return load_file(place) if place.is_file() else load_peft_weights(str(place), "cpu")


class TrainableModel(ABC):
    """A causal language model that trains its LoRA adapter, or with `lora: off` all weights.

    Attributes:
        joins_rows: whether documents share a row even without packing.
        isolation_setting: the setting that prevents documents from sharing a row.
    """

    joins_rows = False
    isolation_setting = "packing=off (by hand --packing off)"

    def __init__(self, network: Any, tokenizer: Any, device: torch.device) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.device = device
        self._noise: Noise | None = None

    @abstractmethod
    def loss(self, batch: Batch, denominator: int) -> torch.Tensor:
        """Return the sum of the token losses of `batch` divided by `denominator`, a scalar.

        With the step's global number of labelled tokens as the denominator, the sum over all
        micro-batches and ranks is the mean token loss of the global batch, however it was cut.
        """

    def token_log_probs(self, batch: Batch) -> torch.Tensor:
        """Return the log-probability of each label of `batch`, and 0 where there is none.

        The shape is that of `batch.labels`: the one at t is predicted from the tokens before t.
        """
        raise NotImplementedError  # parts of a model cannot; settings refuse them

    def generation_mode(self) -> None:
        """Prepare for `generate`: switch dropout off."""
        self.network.eval()

    def training_mode(self) -> None:
        """Prepare for `loss`: switch dropout on."""
        self.network.train()

    def before_step(self) -> None:  # noqa: B027  Most backends have nothing to do here.
        """Run the backend's work between two steps, if it has any."""

    def add_noise(self, alpha: float) -> None:
        """Have `draw_noise` add NEFTune's noise of strength `alpha` to the embeddings."""
        self._noise = Noise(self.network.get_input_embeddings(), alpha)

    def draw_noise(self, batch: Batch, seeds: Sequence[int]) -> None:
        """Draw the noise of `batch`, the next one that `loss` gets, by one seed per row."""
        if self._noise:
            self._noise.draw_for(batch, seeds)

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:  # noqa: B027  As above.
        """Pass the loss scaler to a backend that computes gradients before scaling."""

    def release(self) -> None:
        """Release cached memory after an out-of-memory error."""
        release(self.device)

    def trainable(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yield name and parameter of all trainable parameters, in a fixed order."""
        return ((name, p) for name, p in self.network.named_parameters() if p.requires_grad)

    def hidden_matrices(self) -> list[torch.nn.Parameter]:
        """Return the trainable matrices between the embeddings and the head, in a fixed order."""
        head = self.network.get_output_embeddings()
        outer = {
            id(module.weight)
            for module in self.network.modules()
            if module is head or isinstance(module, torch.nn.Embedding)
        }
        return [p for _, p in self.trainable() if p.ndim == 2 and id(p) not in outer]

    def learning(self) -> dict[str, str]:
        """Return the kinds of layers that learn by LoRA, and a checksum of the trainable weights.

        Ranks compare them: backends differ in the layers that `all-linear` means. The checksum is
        of names, shapes and types.
        """
        tensors = [(name, tuple(p.shape), str(p.dtype)) for name, p in self.trainable()]
        kinds = {name.partition(".lora_")[0].rpartition(".")[2] for name, *_ in tensors}
        return {
            **({"lora_targets": ", ".join(sorted(kinds))} if self.learned == "adapter" else {}),
            "trainable tensors": hashlib.sha256(repr(tensors).encode()).hexdigest()[:16],
        }

    @torch.no_grad()
    def generate(self, prompt: list[int], max_new_tokens: int) -> str:
        """Return the greedy continuation of `prompt` (token ids) as text."""
        self.generation_mode()
        ids = torch.tensor([prompt], device=self.device)
        output = self.network.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max_new_tokens,
            use_cache=True,
            **GREEDY,
            pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
        )
        self.training_mode()
        return self.tokenizer.decode(output[0, len(prompt) :], skip_special_tokens=True).strip()

    @property
    def learned(self) -> Literal["adapter", "model"]:
        """Kind of the trained weights, and their folder's name in a run and a checkpoint."""
        from peft import PeftModel  # late, as below: Unsloth must have been imported before it

        return "adapter" if isinstance(self.network, PeftModel) else "model"

    def save(self, folder: Path, base: str) -> None:
        """Write the trained weights to `folder`, without loss.

        An adapter is written in PEFT's format, for the base model named `base`; a whole model, with
        its tokenizer, in Transformers' format.
        """
        if self.learned == "adapter":
            self.network.peft_config["default"].base_model_name_or_path = base
            self.network.save_pretrained(folder, save_embedding_layers=False)
        else:
            # Transformers would save on rank 0 alone; here every node saves its own copy.
            self.network.should_save_on_this_rank = lambda is_main_process: is_main_process
            self.network.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
            level_modes(folder)

    def restore(self, folder: Path) -> None:
        """Load the trained weights that `save` wrote to `folder`; of an adapter, or to this file.

        Raises `CheckpointError` if they belong to another model.
        """
        restored = self._restore_adapter if self.learned == "adapter" else self._restore_model
        if not restored(folder):
            raise CheckpointError(
                f"{folder}: this {self.learned} does not fit; resume with the model, backend and "
                "lora_targets that the run started with"
            )

    def _restore_adapter(self, folder: Path) -> bool:
        """Load the adapter in `folder`; return whether it fits the model."""
        from peft import set_peft_model_state_dict

        saved = adapter_tensors(folder)
        unknown = set_peft_model_state_dict(self.network, saved).unexpected_keys
        return not unknown and len(saved) == sum(1 for _ in self.trainable())

    @torch.no_grad()
    def _restore_model(self, folder: Path) -> bool:
        """Load all weights from `folder`; return whether they fit the model."""
        stored = type(self.network).from_pretrained(folder, dtype="auto", local_files_only=True)
        saved, own = dict(stored.named_parameters()), dict(self.trainable())
        fits = saved.keys() == own.keys() and all(saved[n].shape == p.shape for n, p in own.items())
        for name, parameter in own.items() if fits else ():
            parameter.copy_(saved[name])
        return fits
