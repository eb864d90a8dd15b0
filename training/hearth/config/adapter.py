"""The adapter that a run begins with (`onto`): files, settings and lineage. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.errors import ConfigError
from hearth.base.files import read_object
from hearth.base.text import listed
from hearth.config.presets import ModelSource

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

_NAMES = {
    "lora_rank": "r",
    "lora_alpha": "lora_alpha",
    "lora_targets": "target_modules",
    "rslora": "use_rslora",
    "dora": "use_dora",
}
"""The settings that an adapter determines, with their names in adapter_config.json."""

DETERMINED = (*_NAMES,)
"""The settings that an adapter determines."""

_HARMLESS = frozenset(
    {
        *("task_type", "peft_type", "peft_version", "auto_mapping", "runtime_config"),
        *("base_model_name_or_path", "revision", "inference_mode", "lora_dropout"),
        *("fan_in_fan_out", "qalora_group_size", "megatron_core", *_NAMES.values()),
    }
)
"""Fields of adapter_config.json that leave the adapter an ordinary one."""

_ORDINARY = {"bias": ("none",), "init_lora_weights": (True, "gaussian", "orthogonal", "eva")}
"""Values of other fields that do. Other initialisations change the base model, too."""

_LENGTH = 8
"""Bytes that hold the length of the header of a safetensors file."""


@dataclass(frozen=True)
class Ancestor:
    """A run that trained an adapter before: its objective, its data and its last step, if known."""

    run: str
    objective: str
    data: str
    step: int | None

    def __str__(self) -> str:
        steps = "" if self.step is None else f", {self.step} steps"
        return f"{self.run} ({self.objective} on {self.data}{steps})"


@dataclass(frozen=True)
class StartAdapter:
    """The adapter that a run begins with, as `run.yml` records it.

    Attributes:
        path: of its weights, on the computer that the run was requested on.
        sha256: the checksum of that file.
        size: its bytes.
        model: fingerprint of the base model that it was trained on, '' if that is not known.
        lineage: the runs that trained it, the last one first; empty if they are not known.
    """

    path: str
    sha256: str
    size: int
    model: str = ""
    lineage: tuple[Ancestor, ...] = ()

    def __str__(self) -> str:
        if not self.lineage:
            return f"the adapter {Path(self.path).parent.name} ({self.sha256[:12]})"
        return ", on top of ".join(map(str, self.lineage))


@dataclass(frozen=True)
class FoundAdapter:
    """An adapter that a person named for `onto`, with what it determines of the new run.

    Attributes:
        name: the value of `onto`: the name of a run, or the path of a folder.
        settings: those that it determines.
        model: the setting `model` of its base, '' if it does not say.
        source: where its base came from, None if that is not known.
    """

    name: str
    start: StartAdapter
    settings: Mapping[str, Any]
    model: str = ""
    source: ModelSource | None = None


def settings_in(folder: Path) -> tuple[dict[str, Any], str]:
    """Return the settings that the adapter in `folder` determines, and the name of its base.

    Raises `ConfigError` if it is no LoRA adapter, or one that Hearth does not train.
    """
    path = folder / ADAPTER_CONFIG
    content = read_object(path)
    if content is None or not content.keys() >= {"r", "lora_alpha", "target_modules"}:
        raise ConfigError(f"{path}: this does not describe a LoRA adapter; copy its folder again")
    odd = [
        name
        for name, value in content.items()
        if (value and name not in _HARMLESS and value not in _ORDINARY.get(name, ()))
        or (name == "peft_type" and value != "LORA")
    ]
    if odd:
        raise ConfigError(
            f"{path}: Hearth trains no adapter with {listed(odd)}; merge it into its model, and "
            "take that as model=FOLDER"
        )
    targets = content["target_modules"]
    if isinstance(targets, str) and targets != "all-linear":  # a pattern
        modules = (name.partition(".lora_")[0] for name in shapes_in(folder / ADAPTER_WEIGHTS))
        targets = sorted({name.rpartition(".")[2] for name in modules})
    found = {name: content[other] for name, other in _NAMES.items() if other in content}
    joined = targets if isinstance(targets, str) else ",".join(sorted(map(str, targets)))
    return found | {"lora_targets": joined}, str(content.get("base_model_name_or_path") or "")


def shapes_in(file: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a safetensors file, by name.

    Raises `ConfigError` if the file is missing, cut short or something else.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(_LENGTH), "little")
            header = json.loads(opened.read(min(length, size)))
        header.pop("__metadata__", None)
        ends = [int(each["data_offsets"][1]) for each in header.values()]
        shapes = {name: tuple(map(int, each["shape"])) for name, each in header.items()}
    except FileNotFoundError:
        raise ConfigError(
            f"{file}: there are no weights of an adapter (only safetensors are read)"
        ) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{file}: this file is damaged; copy the adapter again") from error
    if not ends or size != _LENGTH + length + max(ends):
        raise ConfigError(f"{file}: this file is damaged, or cut short; copy the adapter again")
    return shapes
