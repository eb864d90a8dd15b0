"""An adapter as llama.cpp's converter reads it, which knows plain LoRA only."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


def why_not(adapter: Path) -> str:
    """Return the reason why a GGUF file cannot hold this adapter, empty if it can."""
    config = _config(adapter)
    if config.get("use_dora"):
        return "GGUF has no DoRA adapters"
    if config.get("modules_to_save"):
        return "GGUF has no adapters with whole layers"
    return ""


def write_plain(adapter: Path, folder: Path, name: str) -> None:
    """Write the adapter to `folder`, scaled by alpha / rank, as all adapters in GGUF are.

    The model card there gives it its `name`, which this converter has no option for.

    One with `rslora` is scaled by alpha / sqrt(rank): it gets that alpha which comes to the same.
    """
    config = _config(adapter)
    if config.get("use_rslora"):
        config["lora_alpha"] *= math.sqrt(config["r"])
    folder.mkdir()
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    shutil.copyfile(adapter / WEIGHTS, folder / WEIGHTS)
    card = f"---\nmodel_name: {json.dumps(name)}\n---\n"
    (folder / "README.md").write_text(card, encoding="utf-8")


def _config(adapter: Path) -> dict[str, Any]:
    return json.loads((adapter / CONFIG).read_text(encoding="utf-8"))
