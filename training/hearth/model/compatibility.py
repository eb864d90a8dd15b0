"""Checks of a model folder against a run's settings, before any weights are loaded.

With `own_code`, code that comes with the model may run (see `hearth.model.code`).
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from hearth.base.errors import ModelError, did_you_mean
from hearth.data.load import TokenData


def outline(folder: Path, own_code: bool) -> PreTrainedModel:
    """Return the model in `folder` on the meta device: names and shapes without weights.

    Raises `ModelError` if config.json does not describe a model.
    """
    try:
        with torch.device("meta"):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=own_code)
            return AutoModelForCausalLM.from_config(config, trust_remote_code=own_code)
    except Exception as error:  # each model family raises its own errors for bad values
        raise ModelError(
            f"{folder}/config.json: it does not describe a model ({error}); correct it"
        ) from error


def weights_in(folder: Path, own_code: bool) -> int:
    """Return the number of weights of the model in `folder`, shared ones counted once."""
    return sum(parameter.numel() for parameter in outline(folder, own_code).parameters())


def check_targets(targets: tuple[str, ...] | str, folder: Path, own_code: bool) -> None:
    """Raise `ModelError` if a module that lora_targets names is not in the model."""
    if isinstance(targets, str):
        return
    names = {
        name.rpartition(".")[2]
        for name, module in outline(folder, own_code).named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    unknown = [target for target in targets if target.rpartition(".")[2] not in names]
    if unknown:
        raise ModelError(
            f"lora_targets: the model has no linear layer {', '.join(unknown)}"
            f"{did_you_mean(unknown[0], names)}; it has {', '.join(sorted(names))}"
        )


def check_can_learn(folder: Path, own_code: bool) -> None:
    """Raise `ModelError` if the weights in `folder` are quantised and so cannot be trained."""
    if hasattr(outline(folder, own_code).config, "quantization_config"):
        raise ModelError(
            f"lora: the weights in {folder} are quantised and cannot be trained, as lora=off "
            "would; give the model in 16 bits, or take lora=on"
        )


def check_vocabulary(folder: Path, own_code: bool, data: TokenData) -> None:
    """Raise `ModelError` if `data` contains token ids beyond the model's vocabulary."""
    known = outline(folder, own_code).config.get_text_config().vocab_size
    largest = max(data.train.largest_token, data.held_out.largest_token)
    if largest >= known:
        raise ModelError(
            f"{folder}/config.json: vocab_size is {known}, but the tokenizer numbers the tokens of "
            f"the data up to {largest}; set it to the size of the tokenizer's vocabulary"
        )
