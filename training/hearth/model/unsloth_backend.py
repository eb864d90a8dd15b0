"""Unsloth: fast LoRA kernels on NVIDIA GPUs.

Import this module only if there is a GPU: `import unsloth` itself needs one.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import torch
import torch.nn.functional as F
import unsloth  # noqa: F401  Patches transformers (see `load.prime_backend`).
import unsloth_zoo.compiler
import unsloth_zoo.utils
from packaging.version import Version
from unsloth import FastLanguageModel
from unsloth_zoo import gradient_checkpointing, tokenizer_utils
from unsloth_zoo.temporary_patches.utils import apply_pending_eager_fallbacks

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel
from hearth.model.precision import DTYPES

# Before the fix of unsloth#4142, WORLD_SIZE > 1 with one GPU per node trained wrongly.
_OLDEST = "2026.10.7"

# Unsloth would refuse a tokenizer that has no padding token or pads with its end-of-text token, or
# resize the model for another one. Hearth masks padding by position and needs none.
tokenizer_utils.fix_pad_token = lambda *_, **__: {"changed": False}

# Unsloth would have rank 0 write the code that it generates and tell the others, over the default
# process group. A rank without Unsloth never answers, and another node does not have rank 0's file.
for _module in (unsloth_zoo.utils, unsloth_zoo.compiler):
    _module.torch_distributed_is_initialized = lambda: False

# Unsloth gives up bf16 if any card of the node lacks it; this rank computes on the current one.
# Its modules import that answer from one another, so each has its own.
for _module in [module for name, module in sys.modules.items() if name.startswith("unsloth")]:
    if "SUPPORTS_BFLOAT16" in vars(_module):
        _module.SUPPORTS_BFLOAT16 = torch.cuda.get_device_capability()[0] >= 8


class UnslothModel(TrainableModel):
    """A PEFT model with Unsloth's kernels for forward, loss and backward."""

    joins_rows = True
    isolation_setting = "backend=transformers"

    def before_step(self) -> None:
        """Let Unsloth switch compiled functions back to eager between steps, never within one."""
        apply_pending_eager_fallbacks()

    def release(self) -> None:
        """Release cached memory; reset the counters of the checkpoints too.

        A forward pass that did not end leaves them counting layers that no backward pass visits.
        """
        if hasattr(gradient_checkpointing, "GPU_BUFFERS"):  # else nothing has been offloaded yet
            gradient_checkpointing.reset_unsloth_gradient_checkpointing_buffers()
        super().release()

    def use_scaler(self, scaler: torch.amp.GradScaler) -> None:
        """Pass the scaler to Unsloth's fused cross entropy.

        That computes the gradient of the logits already in the forward pass; unscaled, the gradient
        vanishes in fp16 (unsloth#3529).
        """
        if scaler.is_enabled():
            # The PEFT model, its LoRA wrapper, and the causal model, which reads the attribute.
            for module in (self.network, self.network.base_model, self.network.base_model.model):
                module.accelerator_scaler = scaler

    def loss(self, batch: Batch, denominator: int) -> torch.Tensor:
        """Return the summed token loss over `denominator` (see `TrainableModel.loss`).

        Unsloth's fast path ignores position ids and needs the lengths of the documents instead, in
        a single row: so the rows of the micro-batch are concatenated.
        """
        return self.network(
            input_ids=self._row(batch.input_ids),
            position_ids=self._row(batch.position_ids),
            labels=self._row(batch.labels),
            packed_seq_lengths=torch.tensor(
                batch.packed_seq_lengths, dtype=torch.int32, device=self.device
            ),
            num_items_in_batch=denominator,
            use_cache=False,
        ).loss

    def token_log_probs(self, batch: Batch) -> torch.Tensor:
        """Return the log-probability of each label (see `TrainableModel.token_log_probs`).

        Without labels Unsloth returns logits, for all positions: its fused loss is one sum only.
        """
        logits = self.network(
            input_ids=self._row(batch.input_ids),
            position_ids=self._row(batch.position_ids),
            packed_seq_lengths=torch.tensor(
                batch.packed_seq_lengths, dtype=torch.int32, device=self.device
            ),
            use_cache=False,
        ).logits[0, :-1]
        labels = self._row(batch.labels)[0, 1:]
        (wanted,) = (labels != IGNORED).nonzero(as_tuple=True)
        losses = F.cross_entropy(logits[wanted].float(), labels[wanted], reduction="none")
        found = losses.new_zeros(batch.labels.size).index_copy(0, wanted + 1, -losses)
        return found.view(batch.labels.shape)

    def _row(self, values: object) -> torch.Tensor:
        """Return a (rows, length) array as one row of shape (1, rows * length) on the device."""
        return torch.as_tensor(values, device=self.device).reshape(1, -1)

    def generation_mode(self) -> None:
        """Switch to Unsloth's inference kernels."""
        FastLanguageModel.for_inference(self.network)

    def training_mode(self) -> None:
        """Switch to Unsloth's training kernels."""
        FastLanguageModel.for_training(self.network)


def load(settings: Settings, folder: Path, device: torch.device, precision: str) -> UnslothModel:
    """Return the model in `folder` with a fresh LoRA adapter (see `load.load_model`).

    Raises `ConfigError` for unsupported settings and versions of Unsloth.
    """
    if Version(version("unsloth")) < Version(_OLDEST):
        raise ConfigError(
            f"unsloth {version('unsloth')} is older than {_OLDEST}, which trains wrongly on "
            "several nodes with one GPU each; install requirements/gpu.lock"
        )
    if precision == "fp64":
        raise ConfigError("precision: Unsloth has no fp64; take backend=transformers")
    checkpointing = "unsloth" if settings.gradient_checkpointing else False
    base, tokenizer = FastLanguageModel.from_pretrained(
        str(folder),
        max_seq_length=settings.sequence_length,
        dtype=DTYPES[precision],
        load_in_4bit=settings.load_in_4bit,
        load_in_8bit=settings.load_in_8bit,
        device_map={"": str(device)},
        local_files_only=True,
        use_gradient_checkpointing=checkpointing,
    )
    network = FastLanguageModel.get_peft_model(
        base,
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        use_rslora=settings.rslora,
        use_dora=settings.dora,
        target_modules=_targets(settings, base),
        use_gradient_checkpointing=checkpointing,
        random_state=settings.seed,
    )
    FastLanguageModel.for_training(network)
    return UnslothModel(network, tokenizer, device)


def _targets(settings: Settings, base: torch.nn.Module) -> list[str]:
    """Return the names of the layers to adapt: with `all-linear` those that PEFT would take.

    Unsloth would take seven fixed names; models with merged projections have two of them.
    """
    if settings.lora_targets != "all-linear":
        return list(settings.lora_targets)
    head = base.get_output_embeddings()
    linear = (
        name.rpartition(".")[2]
        for name, module in base.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    )
    return sorted(set(linear))
