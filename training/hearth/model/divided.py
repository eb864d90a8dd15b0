"""A model without the modules of other stages: `parallel: pipeline`.

Transformers' own class computes it. Before any weights are read, its layers, embeddings and head
that belong to other stages are replaced by modules that pass their input on; so all names are the
whole model's, only the stage's own tensors are read, and the whole model is never in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from hearth.base.errors import ModelError
from hearth.base.text import brief, listed
from hearth.model.code import code_in
from hearth.model.experts import (
    StoredExperts,
    make_room,
    read_experts,
    stored_shapes,
)
from hearth.model.stored_tensor import stored_tensors
from hearth.model.weight_files import ModelPart, weight_map


class PassOn(torch.nn.Module):
    """A module of another stage: returns its first input, and has no parameters."""

    def forward(self, hidden: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        """Return `hidden`."""
        return hidden


@dataclass(frozen=True)
class DrawnTensor:
    """Random numbers in place of a stored tensor, drawn when Transformers reads them."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __getitem__(self, _: Any) -> torch.Tensor:
        """Return the numbers, as small as those of a model before its training."""
        return torch.empty(self.shape, dtype=self.dtype, device=self.device).normal_(std=0.02)


@dataclass(frozen=True)
class Family:
    """Names of a model family's modules, within the module that `base_model_prefix` names.

    Attributes:
        embeddings: the module that embeds tokens.
        layers: the list of its decoder layers.
        norm: the module between the layers and the head.
        neutral: attributes that change the embeddings, with values for later stages, whose input
            the first stage has changed already.
        experts: names of a layer's experts in the family's files; None without any.
    """

    embeddings: str = "embed_tokens"
    layers: str = "layers"
    norm: str = "norm"
    neutral: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    experts: StoredExperts | None = None


class NoPositions(torch.nn.Module):
    """Position embeddings that the first stage has added already: adds nothing."""

    def forward(self, position_ids: torch.Tensor) -> torch.Tensor:
        """Return a zero."""
        return torch.zeros((), device=position_ids.device)


_PLAIN = ("gemma3_text", "llama", "mistral", "phi3", "qwen2", "qwen3", "smollm3")
_EXPERTS = Family(experts=StoredExperts("mlp.experts", "gate_proj", "up_proj", "down_proj"))
FAMILIES = {
    **dict.fromkeys(_PLAIN, Family()),
    "gpt2": Family(
        embeddings="wte",
        layers="h",
        norm="ln_f",
        neutral={"wpe": NoPositions, "drop": torch.nn.Identity},
    ),
    **dict.fromkeys(("glm4_moe", "qwen3_moe"), _EXPERTS),
    "mixtral": Family(experts=StoredExperts("block_sparse_moe.experts", "w1", "w3", "w2")),
    "granite": Family(neutral={"embedding_multiplier": lambda: 1.0}),
}
"""The families that can be divided, by `model_type`: those that a test compares with the whole."""


def config_of(folder: Path) -> PreTrainedConfig:
    """Return the configuration of the model in `folder`.

    Raises `ModelError` if the model cannot be divided.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if code_in(folder) or config.model_type not in FAMILIES:
        raise ModelError(
            f"{folder}: parallel=pipeline cannot divide this kind of model ({config.model_type}), "
            f"only {listed(FAMILIES, len(FAMILIES))}; take parallel=ddp or parallel=fsdp"
        )
    return config


def check_quantisation(config: PreTrainedConfig, folder: Path, in_8bit: bool) -> None:
    """Raise `ModelError` if the experts of the model in `folder` cannot be quantised so."""
    if in_8bit and has_experts(config):
        raise ModelError(
            f"load_in_8bit: the experts of {folder}, most of its weights, cannot be quantised to 8 "
            "bits; take load_in_4bit=on"
        )


def has_experts(config: PreTrainedConfig) -> bool:
    """Return whether the model of `config` has experts that can be quantised to 4 bits."""
    family = FAMILIES.get(config.model_type)
    return bool(family and family.experts)


class DividedModel:
    """Loads a model without the modules of other stages.

    Attributes:
        part: the part of the model that the stage holds.
        base: the loaded model.
    """

    def __init__(
        self,
        folder: Path,
        config: PreTrainedConfig,
        part: ModelPart,
        dtype: torch.dtype,
        device: torch.device,
        drawn: bool = False,
        experts_in_4bit: bool = False,
        **more: Any,
    ) -> None:
        """Read the tensors of `part` from `folder` to `device`, as `dtype`.

        With `drawn` they are random numbers instead. `experts_in_4bit` quantises experts, which
        Transformers' own quantisation leaves as they are. `config` is the model's; `more` are
        arguments of Transformers' `from_pretrained`.

        Raises `ModelError` if the weights are not those of the model.
        """
        self.part, self._family = part, FAMILIES[config.model_type]
        self._others: dict[str, torch.nn.Module] = {}
        self._experts_as = dtype if experts_in_4bit else None
        stored = self._drawn(config, dtype, device) if drawn else _stored(folder, part)
        experts = self._experts_among(stored)
        self.base, found = self._class_of(config).from_pretrained(
            None,
            config=config,
            state_dict=stored,
            dtype=dtype,
            attn_implementation="sdpa",
            # Each tensor is placed, and quantised, as it is read.
            device_map={"": str(device)},
            output_loading_info=True,
            **more,
        )
        missing = read_experts(self.base, self._family.experts, experts, device)
        wrong = {*missing, *found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
        if wrong:
            raise ModelError(
                f"{folder}: tensors of layers {part.layers.start} to {part.layers.stop - 1} are "
                f"missing from the weights, or have other shapes than in config.json: "
                f"{listed(wrong)}; copy config.json and the weights of the same model again"
            )

    def _class_of(self, config: PreTrainedConfig) -> type[PreTrainedModel]:
        """Return Transformers' class for `config`, changed to build a model without other stages.

        Its loading then looks for the remaining tensors only.
        """
        whole = AutoModelForCausalLM._model_mapping[type(config)]

        def build(model: PreTrainedModel, config: PreTrainedConfig) -> None:
            whole.__init__(model, config)
            self._find_others(model)
            self.reduce(model)
            if self._experts_as:
                make_room(model, self._experts_as)

        # Transformers goes by the class's names, for example to rename stored tensors.
        return type(whole.__name__, (whole,), {"__init__": build, "__module__": whole.__module__})

    def _drawn(
        self, config: PreTrainedConfig, dtype: torch.dtype, device: torch.device
    ) -> dict[str, Any]:
        """Return random tensors of this part by name, not drawn yet."""
        with torch.device("meta"):
            model = self._class_of(config)(config)
        shapes = {name: each.shape for name, each in model.state_dict().items()}
        shapes |= stored_shapes(model, self._family.experts)
        return {name: DrawnTensor(shape, dtype, device) for name, shape in shapes.items()}

    def _experts_among(self, stored: dict[str, Any]) -> dict[str, Any]:
        """Remove the tensors that are not Transformers' to read from `stored`, and return them."""
        if not (self._experts_as and self._family.experts):
            return {}
        return {name: stored.pop(name) for name in self._family.experts.among(list(stored))}

    def _find_others(self, model: PreTrainedModel) -> None:
        """Remember the modules of other stages, and neutralise what the first stage has done."""
        family, part, prefix = self._family, self.part, model.base_model_prefix
        names = [
            f"{prefix}.{family.layers}.{number}"
            for number in range(part.count)
            if number not in part.layers
        ]
        if not part.first:
            for name, make in family.neutral.items():
                setattr(getattr(model, prefix), name, make())
            if not (part.last and part.tied):
                names.append(f"{prefix}.{family.embeddings}")
        if not part.last:
            names += [f"{prefix}.{family.norm}", "lm_head"]
            model.all_tied_weights_keys = {}
        self._others = {name: model.get_submodule(name) for name in names}

    def reduce(self, model: PreTrainedModel) -> None:
        """Replace the modules of other stages in `model` by `PassOn`."""
        for name in self._others:
            model.set_submodule(name, PassOn())

    def complete(self, model: PreTrainedModel) -> None:
        """Put the modules of other stages back into `model`, on the meta device as they were."""
        for name, module in self._others.items():
            model.set_submodule(name, module)


def _stored(folder: Path, part: ModelPart) -> dict[str, Any]:
    """Return the tensors that `part` needs, not read yet.

    Raises `ModelError` if a file is missing or unreadable.
    """
    files = weight_map(folder)
    needed = part.needed(files)
    try:
        stored = {
            name: stored_tensors(folder / name)
            for name in sorted({files[tensor] for tensor in needed})
        }
        return {tensor: stored[files[tensor]][tensor] for tensor in needed}
    except Exception as error:  # the safetensors library raises its own, OSError and KeyError
        raise ModelError(
            f"{folder}: the weights of layers {part.layers.start} to {part.layers.stop - 1} cannot "
            f"be read ({brief(error)}); copy the model again"
        ) from error
