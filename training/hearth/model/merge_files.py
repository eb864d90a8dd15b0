"""Merges an adapter into the files of a model, one tensor after the other.

A merged file has the names, types, shapes and places of the file that it was made from, so it is a
copy with the adapted tensors replaced. Memory holds one tensor at a time, several times
over: a model of any size is merged on any computer. PEFT does the arithmetic.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, load_peft_weights, set_peft_model_state_dict
from safetensors.torch import save_file
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from hearth.base.errors import ModelError
from hearth.base.files import read_object
from hearth.base.text import listed
from hearth.model.compatibility import outline
from hearth.model.folder import model_files
from hearth.model.stored_tensor import stored_tensors
from hearth.model.weight_files import INDEX, weight_map

Say = Callable[[str], None]

_HEAD_FILE = "model-head.safetensors"


class _AdaptedModule(torch.nn.Module):
    """A module that has one layer, for PEFT to adapt."""

    def __init__(self, layer: torch.nn.Module) -> None:
        super().__init__()
        self.layer = layer


class Adapter:
    """The tensors of an adapter, by the layer that they belong to.

    Raises `ModelError` if it is of a kind that cannot be merged layer by layer.
    """

    def __init__(self, folder: Path) -> None:
        self._config: Any = PeftConfig.from_pretrained(folder)
        more = ("rank_pattern", "alpha_pattern", "target_parameters", "modules_to_save")
        given = [name for name in more if getattr(self._config, name, None)]
        if not isinstance(self._config, LoraConfig) or given or self._config.bias != "none":
            raise ModelError(
                f"{folder}/adapter_config.json: this adapter is of another kind than Hearth's "
                f"({listed(given) or self._config.peft_type}); merge it with PEFT"
            )
        self.layers: dict[str, dict[str, torch.Tensor]] = {}
        for name, tensor in load_peft_weights(str(folder), "cpu").items():
            layer, _, part = name.removeprefix("base_model.model.").partition(".lora_")
            self.layers.setdefault(layer, {})[f"lora_{part}"] = tensor

    @torch.no_grad()
    def merged(self, name: str, layer: torch.nn.Module, weight: torch.Tensor) -> torch.Tensor:
        """Return `weight` of the layer `name` with its adapter merged; `layer` has no weights."""
        tensors, layer = self.layers[name], deepcopy(layer)  # which takes no memory
        layer.weight = torch.nn.Parameter(weight, requires_grad=False)
        config = replace(
            self._config,
            target_modules=["layer"],
            r=tensors["lora_A.weight"].shape[0],
            task_type=None,
            inference_mode=True,
        )
        adapted = PeftModel(_AdaptedModule(layer), config)
        prefix = "base_model.model.layer"
        set_peft_model_state_dict(adapted, {f"{prefix}.{key}": tensors[key] for key in tensors})
        plain = adapted.merge_and_unload(safe_merge=True).layer
        merged, plain.weight = plain.weight.data, None  # PEFT's modules refer to each other
        return merged


def merge_files(
    base: Path,
    own_code: bool,
    adapter: Path,
    folder: Path,
    say: Say,
    dtype: torch.dtype | None = None,
) -> None:
    """Write the model in `base`, with the adapter in `adapter` merged, into `folder`.

    The tokenizer's files are copied, too. With `dtype` all weights get that type before they are
    merged, and memory holds one file at a time.

    Raises `ModelError` if the adapter does not belong to the model or is not Hearth's.
    """
    model = outline(base, own_code)
    learned = Adapter(adapter)
    stored = _stored_names(model, weight_map(base))
    head = _tied_head(model, learned)
    if unknown := learned.layers.keys() - stored.keys() - ({head} if head else set()):
        raise ModelError(
            f"{adapter}: {base} has no such layers of their own: {listed(unknown)}; give the model "
            "that the adapter was trained on"
        )
    targets: dict[str, dict[str, str]] = {}
    for layer in learned.layers.keys() - ({head} if head else set()):
        tensor, file = stored[layer]
        targets.setdefault(file, {})[tensor] = layer
    weights = sorted(set(weight_map(base).values()))
    for path in model_files(base):
        if dtype is None or path.name not in weights:
            shutil.copyfile(path, folder / path.name)
    for count, file in enumerate(weights, 1):
        merging = (targets.get(file, {}), model, learned)
        if dtype is None:
            _merge_file(base / file, folder / file, *merging)
        else:
            _merge_file_as(dtype, base / file, folder / file, *merging)
        if len(weights) > 1:
            say(f"merged {count} of {len(weights)} files")
    if dtype:
        config = read_object(folder / "config.json") or {}
        config |= {"dtype": str(dtype).removeprefix("torch.")}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if head:
        _write_head(base, folder, head, model, learned, stored, dtype)


def _stored_names(model: Any, files: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return the stored tensor and the file of each layer's weight that is stored as it is."""
    conversions = get_model_conversion_mapping(model)
    renamed = [each for each in conversions if isinstance(each, WeightRenaming)]
    converted = [each for each in conversions if isinstance(each, WeightConverter)]
    own = model.state_dict()
    found = {}
    for tensor, file in files.items():
        name, converter = rename_source_key(
            tensor, renamed, converted, model.base_model_prefix, own
        )
        if name in own and converter is None and name.endswith(".weight"):
            found[name.removesuffix(".weight")] = (tensor, file)
    return found


def _merge_file(
    source: Path,
    target: Path,
    tensors: Mapping[str, str],
    model: torch.nn.Module,
    adapter: Adapter,
) -> None:
    """Replace `tensors`, layers by stored name, in `target`, a copy of the file `source`."""
    stored = stored_tensors(source)
    with target.open("r+b") as file:
        for tensor, layer in tensors.items():
            merged = adapter.merged(layer, model.get_submodule(layer), stored[tensor][:])
            file.seek(stored[tensor].start)
            file.write(merged.contiguous().view(torch.uint8).numpy())


def _merge_file_as(
    dtype: torch.dtype,
    source: Path,
    target: Path,
    tensors: Mapping[str, str],
    model: torch.nn.Module,
    adapter: Adapter,
) -> None:
    """Write `target` with the weights of the file `source` as `dtype`, and `tensors` merged."""
    merged = {}
    for name, stored in stored_tensors(source).items():
        tensor = _as(dtype, stored[:])
        if layer := tensors.get(name):
            tensor = adapter.merged(layer, model.get_submodule(layer), tensor)
        merged[name] = tensor.contiguous()
    save_file(merged, target, {"format": "pt"})


def _as(dtype: torch.dtype | None, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of numbers with a fraction as `dtype`, any other as it is."""
    return tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor


def _tied_head(model: Any, adapter: Adapter) -> str | None:
    """Return the name of an adapted head that shares its weights with the embeddings, if any.

    The adapter changes the head's output, not the embeddings; merged into shared weights, it would
    change both.
    """
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not embeddings.weight:
        return None
    name = next(name for name, module in model.named_modules() if module is head)
    return name if name in adapter.layers else None


def _write_head(
    base: Path,
    folder: Path,
    head: str,
    model: Any,
    adapter: Adapter,
    stored: Mapping[str, tuple[str, str]],
    dtype: torch.dtype | None,
) -> None:
    """Write the merged head into a file of its own; the model no longer ties it."""
    embeddings = model.get_input_embeddings()
    name = next(name for name, module in model.named_modules() if module is embeddings)
    tensor, file = stored[name] if name in stored else stored[head]
    weight = _as(dtype, stored_tensors(base / file)[tensor][:])
    merged = adapter.merged(head, model.get_submodule(head), weight)
    save_file({f"{head}.weight": merged.contiguous()}, folder / _HEAD_FILE, {"format": "pt"})
    files = {**weight_map(base), f"{head}.weight": _HEAD_FILE}
    if (single := folder / "model.safetensors").is_file():
        # Transformers reads no other file beside one of this name.
        single.rename(folder / "model-rest.safetensors")
        files = dict.fromkeys(files, "model-rest.safetensors") | {f"{head}.weight": _HEAD_FILE}
    size = sum((folder / file).stat().st_size for file in set(files.values()))
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")
    config = read_object(folder / "config.json") or {}
    for part in (config, config.get("text_config")):
        if isinstance(part, dict):
            part["tie_word_embeddings"] = False
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
