"""Transformers + PEFT: runs anywhere torch runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

from hearth.config import Settings
from hearth.data import IGNORED, Batch
from hearth.model.precision import DTYPES
from hearth.model.seam import TrainableModel


class TransformersModel(TrainableModel):
    """A PEFT model whose forward is Transformers' own."""

    def loss(self, batch: Batch, denominator: int) -> torch.Tensor:
        """Return the summed token loss over `denominator` (see `TrainableModel.loss`).

        No attention mask and no cache: only then does Transformers read document boundaries from
        the position ids and keep the documents of a packed row apart. Logits are computed only
        where some row has a label; they are often the largest tensor of all.
        """
        labels = torch.as_tensor(batch.labels, device=self.device)
        targets = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        wanted = (targets != IGNORED).any(dim=0).nonzero().squeeze(1)
        logits = self.network(
            input_ids=torch.as_tensor(batch.input_ids, device=self.device),
            position_ids=torch.as_tensor(batch.position_ids, device=self.device),
            use_cache=False,
            logits_to_keep=wanted,
        ).logits
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        total = F.cross_entropy(
            logits.flatten(0, 1),
            targets[:, wanted].flatten(),
            ignore_index=IGNORED,
            reduction="sum",
        )
        return total / denominator

    def generation_mode(self) -> None:
        """Switch dropout off."""
        self.network.eval()

    def training_mode(self) -> None:
        """Switch dropout on."""
        self.network.train()


def load(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> TransformersModel:
    """Return the model in `folder` with a fresh LoRA adapter (see `load.load_model`)."""
    dtype = DTYPES[precision]
    options = {"dtype": dtype, "attn_implementation": "sdpa", "local_files_only": True}
    if settings.load_in_4bit:
        # 4-bit weights are placed while they are loaded; moving them later is not supported.
        options["device_map"] = {"": str(device)}
        options["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
    base = AutoModelForCausalLM.from_pretrained(folder, **options)
    if settings.load_in_4bit:
        base = prepare_model_for_kbit_training(
            base, use_gradient_checkpointing=settings.gradient_checkpointing
        )
    else:
        base = base.to(device)
    base.config.use_cache = False
    if settings.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.enable_input_require_grads()
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=(
            settings.lora_targets
            if isinstance(settings.lora_targets, str)
            else list(settings.lora_targets)
        ),
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # PEFT warns of tied embeddings even where only linear layers are adapted.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
        network = get_peft_model(base, lora)
    if precision == "fp64":
        network = network.to(torch.float64)
    network.train()
    return TransformersModel(network, AutoTokenizer.from_pretrained(folder), device)
