"""Transformers + PEFT: runs anywhere torch runs."""

from __future__ import annotations

import inspect
import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from hearth.config import Settings
from hearth.data.rows import IGNORED, Batch
from hearth.model.backend import TrainableModel
from hearth.model.code import may_run
from hearth.model.compatibility import dropouts_in
from hearth.model.compilation import compile_layers
from hearth.model.divided import DividedModel, check_quantisation, has_experts
from hearth.model.experts import experts_in, shared_targets, targets_as_named
from hearth.model.precision import DTYPES
from hearth.model.weight_files import ModelPart


class TransformersModel(TrainableModel):
    """A model computed by Transformers, with a PEFT adapter or trained whole."""

    def loss(self, batch: Batch, denominator: int) -> torch.Tensor:
        """Return the summed token loss over `denominator` (see `TrainableModel.loss`).

        Pass no attention mask and no cache: only then does Transformers read document boundaries
        from the position ids and isolate the documents of a packed row. Logits, often the largest
        tensor of all, are computed only at positions where some row has a label.
        """
        return self._loss(batch, denominator, input_ids=self._on_device(batch.input_ids))

    def token_log_probs(self, batch: Batch) -> torch.Tensor:
        """Return the log-probability of each label (see `TrainableModel.token_log_probs`)."""
        logits, targets, wanted = self._logits(batch, input_ids=self._on_device(batch.input_ids))
        losses = F.cross_entropy(logits.mT, targets, ignore_index=IGNORED, reduction="none")
        return losses.new_zeros(batch.labels.shape).index_copy(1, wanted + 1, -losses)

    def _loss(self, batch: Batch, denominator: int, **inputs: torch.Tensor) -> torch.Tensor:
        """Return `loss` of `batch`, with its tokens or their hidden states as `inputs`."""
        logits, targets, _ = self._logits(batch, **inputs)
        total = F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        return total / denominator

    def _logits(
        self, batch: Batch, **inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits and next tokens at the positions before a label in some row, and these.

        The shapes are (rows, positions, vocabulary), (rows, positions) and (positions,).
        """
        labels = self._on_device(batch.labels)
        targets = F.pad(labels[:, 1:], (0, 1), value=IGNORED)
        wanted = (targets != IGNORED).any(dim=0).nonzero().squeeze(1)
        few = {"logits_to_keep": wanted} if self._computes_few else {}
        logits = self.network(
            **inputs,
            position_ids=self._on_device(batch.position_ids),
            use_cache=False,
            **few,
        ).logits
        if not few:
            logits = logits[:, wanted]
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        return logits, targets[:, wanted], wanted

    def _on_device(self, numbers: np.ndarray) -> torch.Tensor:
        """Return `numbers` of a batch as a tensor on the model's device."""
        return torch.as_tensor(numbers, device=self.device)

    @cached_property
    def _computes_few(self) -> bool:
        """Whether the model can compute the logits of selected positions only.

        A model's own code often cannot.
        """
        model = self.network
        forward = (model.get_base_model() if isinstance(model, PeftModel) else model).forward
        return "logits_to_keep" in inspect.signature(forward).parameters


def load(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> TransformersModel:
    """Return the model in `folder`, ready for training (see `load.load_model`)."""
    own_code = may_run(settings.trust_remote_code, folder)
    base = load_base(settings, folder, device, precision)
    if settings.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        base.enable_input_require_grads()
    network = with_adapter(base, settings) if settings.lora else base
    if settings.compile:
        compile_layers(base)
    if precision == "fp64":
        network = network.to(torch.float64)
    network.train()
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=own_code)
    return TransformersModel(network, tokenizer, device)


def load_base(
    settings: Settings, folder: Path, device: torch.device, precision: str
) -> PreTrainedModel:
    """Return the model in `folder` on `device` without an adapter, quantised as `settings` say.

    With `scratch` its weights are drawn, and with `lora: off` they are ready to learn.
    """
    own_code = may_run(settings.trust_remote_code, folder)
    changes: dict[str, Any] = {}
    if settings.dropout is not None:
        changes = dict.fromkeys(dropouts_in(folder, own_code), settings.dropout)
    if settings.scratch:
        return _drawn(folder, own_code, precision, changes).to(device)
    if settings.load_in_4bit or settings.load_in_8bit:
        return _quantised(settings, folder, own_code, device, precision, changes)
    dtype = DTYPES[precision] if settings.lora else _learning_dtype(precision)
    return _stored(folder, own_code, dtype, **changes).to(device)


def _learning_dtype(precision: str) -> torch.dtype:
    """Return the data type of trainable weights.

    Updates are often smaller than the last of bf16's 8 bits and would be rounded away; so autocast
    computes in 16 bits from 32-bit weights.
    """
    return torch.float64 if precision == "fp64" else torch.float32


def _stored(folder: Path, own_code: bool, dtype: torch.dtype, **more: Any) -> PreTrainedModel:
    """Return the model stored in `folder`, with its weights as `dtype`.

    `more` are arguments of Transformers, or values that replace those in config.json.
    """
    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        attn_implementation=None if own_code else "sdpa",
        local_files_only=True,
        trust_remote_code=own_code,
        **_implementation(dtype),
        **more,
    )


def _implementation(dtype: torch.dtype) -> dict[str, str]:
    """Return arguments of Transformers for a mixture of experts computed in `dtype`.

    By default all experts of a layer are one operation, and torch has none for float64.
    """
    return {"experts_implementation": "eager"} if dtype == torch.float64 else {}


def _quantised(
    settings: Settings,
    folder: Path,
    own_code: bool,
    device: torch.device,
    precision: str,
    changes: dict[str, Any],
) -> PreTrainedModel:
    """Return the model in `folder` with `changes`, frozen and quantised by bitsandbytes.

    4 bits are NF4, as in the QLoRA paper; 8 bits are LLM.int8 (arXiv:2208.07339).
    """
    config = AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=own_code, **changes
    )
    check_quantisation(config, folder, settings.load_in_8bit)
    if has_experts(config):
        count = config.num_hidden_layers
        part = ModelPart(range(count), count, bool(config.tie_word_embeddings))
        return load_part(settings, folder, config, part, device, precision).base
    if stored := getattr(config, "quantization_config", None):
        # How the weights are stored holds; only the precision of the computation is this run's.
        stored["bnb_4bit_compute_dtype"] = str(DTYPES[precision]).removeprefix("torch.")
        changes = {"config": config}
    else:
        changes = {**changes, "quantization_config": _quantisation(settings, precision)}
    base = _stored(
        folder,
        own_code,
        DTYPES[precision],
        # Quantised weights are placed while they are loaded; moving them later is not supported.
        device_map={"": str(device)},
        **changes,
    )
    return _make_trainable(base)


def load_part(
    settings: Settings,
    folder: Path,
    config: PreTrainedConfig,
    part: ModelPart,
    device: torch.device,
    precision: str,
    drawn: bool = False,
) -> DividedModel:
    """Return a `part` of the model in `folder`, quantised and frozen as `settings` say.

    With `drawn` its weights are random numbers.
    """
    check_quantisation(config, folder, settings.load_in_8bit)
    dtype, quantised = DTYPES[precision], settings.load_in_4bit or settings.load_in_8bit
    more: dict[str, Any] = _implementation(dtype)
    if quantised:
        # Without the head's name Transformers would take the last module of the part for the head.
        more["quantization_config"] = _quantisation(settings, precision, ["lm_head"])
    divided = DividedModel(
        folder, config, part, dtype, device, drawn, experts_in_4bit=settings.load_in_4bit, **more
    )
    if quantised:
        _make_trainable(divided.base)
    return divided


def _quantisation(
    settings: Settings, precision: str, but: list[str] | None = None
) -> BitsAndBytesConfig:
    """Return the quantisation that `settings` ask for.

    Modules named in `but` are not quantised; by default that is the head.
    """
    return BitsAndBytesConfig(
        load_in_4bit=settings.load_in_4bit,
        load_in_8bit=settings.load_in_8bit,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=DTYPES[precision],
        llm_int8_skip_modules=but,
    )


def _make_trainable(base: PreTrainedModel) -> PreTrainedModel:
    """Freeze the quantised model `base`, ready for gradients to pass through it; return it."""
    from bitsandbytes.nn import Linear4bit

    for layer in base.modules():
        if isinstance(layer, Linear4bit):
            # On CPUs with AVX512-BF16 the first evaluation would repack the weights permanently
            # into a format without gradients.
            layer.support_avx512bf16_for_cpu = False
    return prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)


def _drawn(
    folder: Path, own_code: bool, precision: str, changes: dict[str, Any]
) -> PreTrainedModel:
    """Return the model that config.json in `folder` describes with `changes`, of random weights.

    They are drawn on the CPU, where every machine draws the same numbers, and in float32, so that
    all precisions start from the same weights.
    """
    config = AutoConfig.from_pretrained(
        folder, local_files_only=True, trust_remote_code=own_code, **changes
    )
    model = AutoModelForCausalLM.from_config(
        config,
        dtype=torch.float32,
        attn_implementation=None if own_code else "sdpa",
        trust_remote_code=own_code,
    )
    if (folder / "generation_config.json").is_file():
        model.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    return model.to(_learning_dtype(precision))


def with_adapter(base: PreTrainedModel, settings: Settings) -> PeftModel:
    """Return `base`, frozen, with a fresh LoRA adapter."""
    targets: tuple[str, ...] | list[str] | str = settings.lora_targets
    as_named: AbstractContextManager[None] = nullcontext()
    if has_experts(base.config) or experts_in(base):
        targets, as_named = shared_targets(base, settings.lora_targets), targets_as_named(base)
    lora = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        use_rslora=settings.rslora,
        use_dora=settings.dora,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    with as_named, warnings.catch_warnings():
        # PEFT warns of tied embeddings even where only linear layers are adapted.
        warnings.filterwarnings("ignore", message=".*tie_word_embeddings.*")
        return get_peft_model(base, lora)
