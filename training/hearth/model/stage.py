"""One stage of `parallel: pipeline`: consecutive decoder layers of a model, computed alone.

Only hidden states pass between stages. Everything else that the layers need (position ids, the
borders of documents, labels, seeds) comes from the batch, which every rank has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from transformers import AutoTokenizer, GenerationConfig, RepetitionPenaltyLogitsProcessor

from hearth.base.errors import CheckpointError
from hearth.config import Settings
from hearth.data.rows import Batch
from hearth.model.backend import REPETITION_PENALTY, adapter_tensors
from hearth.model.compatibility import dropouts_in
from hearth.model.divided import FAMILIES, config_of
from hearth.model.loaded import check_finite
from hearth.model.noise import seed_torch
from hearth.model.precision import DTYPES
from hearth.model.transformers_backend import TransformersModel, load_part, with_adapter
from hearth.model.weight_files import ModelPart
from hearth.ranks.memory import returning_memory


class StageModel(TransformersModel):
    """The layers of one stage with their part of the adapter.

    Attributes:
        part: the stage's part of the model.
        hidden_size: width of the hidden states that pass between stages.
        hidden_dtype: their data type.
        end_tokens: tokens that end an answer.
    """

    def __init__(
        self,
        network: Any,
        tokenizer: Any,
        device: torch.device,
        part: ModelPart,
        hidden_dtype: torch.dtype,
        learning: dict[str, str],
    ) -> None:
        super().__init__(network, tokenizer, device)
        base = network.get_base_model()
        self.part, self.hidden_dtype = part, hidden_dtype
        self.hidden_size: int = base.config.get_text_config().hidden_size
        ends = base.generation_config.eos_token_id or getattr(tokenizer, "eos_token_id", None)
        self.end_tokens = frozenset(ends if isinstance(ends, list) else [ends])
        self._learning = learning
        self._inner: torch.nn.Module = getattr(base, base.base_model_prefix)
        self._seeds: Sequence[int] = ()
        family = FAMILIES[base.config.model_type]
        for number in part.layers:
            self._seed_before(getattr(self._inner, family.layers)[number], number)

    @property
    def first(self) -> bool:
        """Whether the stage begins with the embeddings."""
        return self.part.first

    @property
    def last(self) -> bool:
        """Whether the stage ends with the head."""
        return self.part.last

    @property
    def layers(self) -> range:
        """The stage's decoder layers."""
        return self.part.layers

    def hidden(
        self, batch: Batch, hidden: torch.Tensor | None, seeds: Sequence[int]
    ) -> torch.Tensor:
        """Return the hidden states (rows, length, hidden_size) of `batch` after this stage.

        `hidden` are those before it; with None the first stage embeds the tokens. `seeds`, one per
        row, are for dropout and noise. The last stage has `stage_loss` instead.
        """
        with self._seeded(batch, seeds):
            return self._inner(
                **self._inputs(batch, hidden),
                position_ids=self._on_device(batch.position_ids),
                use_cache=False,
            ).last_hidden_state

    def stage_loss(
        self, batch: Batch, hidden: torch.Tensor | None, denominator: int, seeds: Sequence[int]
    ) -> torch.Tensor:
        """Return `loss` of `batch` from the hidden states before this stage, the last one."""
        with self._seeded(batch, seeds):
            return self._loss(batch, denominator, **self._inputs(batch, hidden))

    @torch.no_grad()
    def next_token(self, batch: Batch, hidden: torch.Tensor | None) -> int:
        """Return the token that follows the one row of `batch`, as `generate` would choose it.

        For the last stage.
        """
        logits = self.network(
            **self._inputs(batch, hidden),
            position_ids=self._on_device(batch.position_ids),
            use_cache=False,
        ).logits[:, -1]
        scores = RepetitionPenaltyLogitsProcessor(REPETITION_PENALTY)(
            self._on_device(batch.input_ids), logits.float()
        )
        return int(scores.argmax(dim=-1))

    def add_noise(self, alpha: float) -> None:
        """Have `draw_noise` add NEFTune's noise, on the stage that embeds the tokens."""
        if self.first:
            super().add_noise(alpha)

    def learning(self) -> dict[str, str]:
        """Return the layers of the whole model that learn: all stages return the same."""
        return self._learning

    def adapter_tensors(self) -> dict[str, torch.Tensor]:
        """Return this stage's tensors of the adapter, by their names in PEFT's files."""
        return get_peft_model_state_dict(self.network, save_embedding_layers=False)

    def save_whole(self, folder: Path, base: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write the whole adapter to `folder`, in PEFT's format, for the model named `base`.

        `tensors` are the `adapter_tensors` of all stages.
        """
        config = self.network.peft_config["default"]
        config.base_model_name_or_path = base
        folder.mkdir(parents=True, exist_ok=True)
        inference, config.inference_mode = config.inference_mode, True  # as PEFT saves it
        config.save_pretrained(folder)
        config.inference_mode = inference
        whole = {name: tensors[name].detach().cpu().contiguous() for name in sorted(tensors)}
        save_file(whole, folder / "adapter_model.safetensors", metadata={"format": "pt"})

    def restore(self, folder: Path) -> None:
        """Load this stage's tensors from the adapter in `folder`, of several stages, or this file.

        Raises `CheckpointError` if some are not there or belong to another model.
        """
        if not self.restore_tensors(adapter_tensors(folder)):
            raise CheckpointError(
                f"{folder}: this adapter does not fit; resume with the model and lora_targets that "
                "the run started with"
            )

    def restore_tensors(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Load this stage's tensors among `tensors`; return whether all are there and fit."""
        own = self.adapter_tensors()
        if any(name not in tensors or tensors[name].shape != own[name].shape for name in own):
            return False
        set_peft_model_state_dict(self.network, {name: tensors[name] for name in own})
        return True

    def _inputs(self, batch: Batch, hidden: torch.Tensor | None) -> dict[str, torch.Tensor]:
        if hidden is not None:
            return {"inputs_embeds": hidden}
        assert self.first
        return {"input_ids": self._on_device(batch.input_ids)}

    @contextmanager
    def _seeded(self, batch: Batch, seeds: Sequence[int]) -> Iterator[None]:
        """Have the enclosed forward pass draw by `seeds`."""
        self._seeds = seeds
        if seeds and self.first:
            seed_torch(seeds[0], self.device)
            self.draw_noise(batch, seeds)
        try:
            yield
        finally:
            self._seeds = ()

    def _seed_before(self, layer: torch.nn.Module, number: int) -> None:
        """Seed torch by micro-batch and `number` before `layer`: no noise depends on the stages.

        Gradient checkpointing restores the random state when it computes the layer again, so the
        seed must be set before it stores that state; a hook of the layer would come later.
        """

        def seed(*_: Any) -> None:
            if self._seeds and self.network.training:
                mixed = np.random.SeedSequence([self._seeds[0] % 2**64, number])
                seed_torch(int(mixed.generate_state(1, np.uint64)[0] >> 1), self.device)

        if checkpoint := getattr(layer, "_gradient_checkpointing_func", None):

            def seeded(*inputs: Any, **named: Any) -> Any:
                seed()
                return checkpoint(*inputs, **named)

            layer._gradient_checkpointing_func = seeded
        else:
            layer.register_forward_pre_hook(seed)


def load_stage(
    settings: Settings,
    folder: Path,
    device: torch.device,
    precision: str,
    layers: range,
    count: int,
    drawn: bool = False,
) -> StageModel:
    """Return the `layers` of the model in `folder`, which has `count`, ready for training.

    Only their tensors are read. The fresh adapter equals these layers' part of the whole model's,
    drawn by torch's random numbers in the same state.

    With `drawn` the weights are random, and `folder` has just a config.json. Then `layers` may be
    empty: `range(0, 0)` is the embeddings alone, `range(count, count)` the head.

    Raises `ModelError` if the model cannot be divided, or if its weights are missing or not finite.
    """
    config = config_of(folder)
    if settings.dropout is not None:
        for name in dropouts_in(folder, own_code=False):
            setattr(config, name, settings.dropout)
    part = ModelPart(layers, count, bool(config.tie_word_embeddings))
    with returning_memory():
        divided = load_part(settings, folder, config, part, device, precision, drawn)
    base = divided.base
    # Adapters draw random numbers one after the other, those of other stages too.
    divided.complete(base)
    network = with_adapter(base, settings)
    learning = TransformersModel(network, None, device).learning()
    divided.reduce(base)
    if precision == "fp64":
        network = network.to(torch.float64)
    if settings.gradient_checkpointing:
        base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    network.train()
    if (folder / "generation_config.json").is_file():
        base.generation_config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    tokenizer = None if drawn else AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    quantised = settings.load_in_4bit or settings.load_in_8bit
    hidden_dtype = torch.float32 if quantised else DTYPES[precision]
    stage = StageModel(network, tokenizer, device, part, hidden_dtype, learning)
    if not drawn:
        check_finite(network, folder)
        if settings.neftune:
            stage.add_noise(settings.neftune)
    return stage


drawn_stage = functools.partial(load_stage, drawn=True)
