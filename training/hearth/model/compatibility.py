"""Checks of a model folder against a run's settings, before any weights are loaded.

With `own_code`, code that comes with the model may run (see `hearth.model.code`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from hearth.base.errors import ModelError, did_you_mean
from hearth.base.files import read_object
from hearth.base.text import brief, listed
from hearth.config import Settings
from hearth.config.adapter import shapes_in
from hearth.data.load import TokenData
from hearth.data.rendering import template_problems


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
            f"{folder}/config.json: it does not describe a model ({brief(error)}); correct it"
        ) from error


def tokenizer_in(folder: Path, own_code: bool) -> Any:
    """Return the tokenizer in `folder`.

    Raises `ModelError` if it cannot be read, or its chat template cannot be used.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=own_code)
    except Exception as error:  # the tokenizers library raises bare exceptions
        raise ModelError(
            f"{folder}: its tokenizer cannot be read ({brief(error)}); copy tokenizer.json "
            "and tokenizer_config.json of the model again"
        ) from error
    if problems := template_problems(tokenizer):
        raise ModelError(*(f"{folder}: {problem}" for problem in problems))
    return tokenizer


def stops_in(folder: Path) -> tuple[int, ...]:
    """Return the tokens that stop generation, as the model in `folder` says itself."""
    for name in ("generation_config.json", "config.json"):
        known = (read_object(folder / name) or {}).get("eos_token_id")
        stops = known if isinstance(known, list) else [known]
        if stops := tuple(stop for stop in stops if type(stop) is int):
            return stops
    return ()


def check_weights(folder: Path, own_code: bool) -> None:
    """Raise `ModelError` if the weights in `folder` are not those that config.json describes.

    Transformers draws missing tensors at random and drops unexpected ones. On the meta device it
    reads the files' headers only, and knows which tensors are shared or may be ignored.
    """
    expected = outline(folder, own_code)
    # Its quantiser would want the weights themselves.
    quantised = expected.config.__dict__.pop("quantization_config", None) is not None
    try:
        _, found = AutoModelForCausalLM.from_pretrained(
            folder,
            config=expected.config,
            dtype="auto",
            device_map="meta",
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=own_code,
        )
    except Exception as error:  # as in `outline`
        raise ModelError(
            f"{folder}: its weights cannot be loaded ({brief(error)}); copy the model again"
        ) from error
    missing, unexpected = found["missing_keys"], found["unexpected_keys"]
    shapes = sorted(found["mismatched_keys"])
    if quantised:
        # Packed weights have other shapes, and other tensors beside or instead of them.
        layers = {name for name, module in expected.named_modules() if not any(module.children())}
        packed = {_layer_of(name, layers) for name in unexpected}
        missing = {name for name in missing if _layer_of(name, layers) not in packed}
        unexpected = {name for name in unexpected if not _layer_of(name, layers)}
        shapes = []
    cure = "copy config.json and the weights of the same model again"
    findings = [
        f"{folder}: {what}: {listed(names)}; {cure}"
        for what, names in (
            ("tensors of the model are missing from its weights", missing),
            ("its weights have tensors that the model in config.json lacks", unexpected),
        )
        if names
    ]
    if shapes:
        each = [f"{name} {list(here)}, but {list(there)}" for name, here, there in shapes]
        findings.append(
            f"{folder}: tensors have other shapes than in config.json: {listed(each)}; {cure}"
        )
    if findings:
        raise ModelError(*findings)


def _layer_of(tensor: str, layers: set[str]) -> str:
    """Return the name of the layer that a tensor belongs to, or ''."""
    while tensor and tensor not in layers:
        tensor = tensor.rpartition(".")[0]
    return tensor


def positions_in(folder: Path, own_code: bool, backend: str) -> int | None:
    """Return the number of positions that the model in `folder` knows, None if it has no limit.

    Unsloth would scale RoPE for longer rows without a word, and Transformers would not: neither is
    what the model has learned. A model's own scaling counts, but Unsloth replaces it.
    """
    config = outline(folder, own_code).config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None)
    if limit and backend != "unsloth":
        rope = getattr(config, "rope_parameters", None) or {}
        for each in (rope, *(part for part in rope.values() if isinstance(part, dict))):
            original = each.get("original_max_position_embeddings") or limit
            limit = max(limit, int(original * (each.get("factor") or 1)))
    return limit or None


def check_length(folder: Path, own_code: bool, sequence_length: int, backend: str) -> None:
    """Raise `ModelError` if a row can be longer than the model's positions."""
    limit = positions_in(folder, own_code, backend)
    if limit and sequence_length > limit:
        raise ModelError(
            f"sequence_length: {sequence_length} is more than the {limit} positions that the model "
            f"knows ({folder}/config.json: max_position_embeddings); take sequence_length={limit}"
        )


def weights_in(folder: Path, own_code: bool) -> int:
    """Return the number of weights of the model in `folder`, shared ones counted once."""
    return sum(parameter.numel() for parameter in outline(folder, own_code).parameters())


def dropouts_in(folder: Path, own_code: bool) -> list[str]:
    """Return the names that config.json in `folder` has for the dropouts of the model."""
    config = outline(folder, own_code).config.to_dict()
    return [name for name in config if name.endswith(("dropout", "pdrop"))]


def check_dropout(folder: Path, own_code: bool, dropout: float | None) -> None:
    """Raise `ModelError` if the model in `folder` cannot apply the dropout of the settings."""
    if dropout and not dropouts_in(folder, own_code):
        raise ModelError(
            f"dropout: {folder}/config.json names no dropout, so {dropout:g} would do nothing; "
            "leave dropout out"
        )


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


def check_adapter(file: Path, folder: Path, own_code: bool) -> None:
    """Raise `ModelError` if the adapter in the safetensors `file` does not fit the model.

    `folder` holds the model. LoRA's A is (rank, inputs) and B (outputs, rank) of a linear layer.
    """
    modules = dict(outline(folder, own_code).named_modules())
    strange = []
    for name, shape in shapes_in(file).items():
        layer, lora, matrix = name.removeprefix("base_model.model.").rpartition(".lora_")
        module = modules.get(layer)
        size = getattr(module, {"A": "in_features", "B": "out_features"}.get(matrix[:1], ""), None)
        if lora and (module is None or size not in (None, shape[matrix[:1] == "A"])):
            strange.append(layer)
    if strange:
        raise ModelError(
            f"onto: the adapter is for layers that {folder.name} lacks, or has with other sizes: "
            f"{listed(dict.fromkeys(strange))}; leave model out, or take another adapter"
        )


def check_can_learn(folder: Path, own_code: bool) -> None:
    """Raise `ModelError` if the weights in `folder` are quantised and so cannot be trained."""
    if hasattr(outline(folder, own_code).config, "quantization_config"):
        raise ModelError(
            f"lora: the weights in {folder} are quantised and cannot be trained, as lora=off "
            "would; give the model in 16 bits, or take lora=on"
        )


def check_stored_bits(folder: Path, own_code: bool, settings: Settings) -> None:
    """Raise `ModelError` if `settings` do not suit weights that bitsandbytes has quantised.

    No gradient would pass through them, and an 8-bit run would train on 4 bits without a word.
    """
    stored = getattr(outline(folder, own_code).config, "quantization_config", None)
    if not isinstance(stored, dict) or stored.get("quant_method") != "bitsandbytes":
        return
    wanted = "load_in_4bit" if stored.get("load_in_4bit") else "load_in_8bit"
    findings = []
    if settings.lora and not getattr(settings, wanted):
        findings.append(
            f"{wanted}: the weights in {folder} are stored in {wanted[8]} bits and train only so; "
            f"take {wanted}=on, or give the model in 16 bits"
        )
    if not settings.holds_all:
        findings.append(
            f"parallel: the weights in {folder} are stored in {wanted[8]} bits and cannot be "
            "divided over the ranks; give the model in 16 bits, or take parallel=ddp"
        )
    if findings:
        raise ModelError(*findings)


def vocabulary_of(folder: Path, own_code: bool) -> int:
    """Return the number of tokens that the model in `folder` knows."""
    return outline(folder, own_code).config.get_text_config().vocab_size


def check_vocabulary(folder: Path, own_code: bool, data: TokenData, drawn: bool) -> None:
    """Raise `ModelError` if `data` contains token ids beyond the model's vocabulary.

    `drawn`: its weights are drawn for the run, so that the vocabulary can still be chosen.
    """
    known = vocabulary_of(folder, own_code)
    largest = max(data.train.largest_token, data.held_out.largest_token)
    if largest >= known:
        raise ModelError(
            f"{folder}/config.json: vocab_size is {known}, but the tokenizer numbers the tokens of "
            f"the data up to {largest}; "
            + (
                "set it to the size of the tokenizer's vocabulary"
                if drawn
                else "copy the tokenizer that belongs to these weights"
            )
        )
