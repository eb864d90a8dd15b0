"""The folder of a finished run, made without any training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from hearth.config import resolve_run, write_run
from hearth.config.presets import ModelSource
from hearth.model.cache import local_folder


def make_adapter(model: Path, folder: Path, seed: int = 1, **more: Any) -> Path:
    """Write an adapter for `model` that changes its answers, to `folder`; return it."""
    torch.manual_seed(seed)
    wanted = {"r": 4, "lora_alpha": 64, "target_modules": "all-linear"} | more
    network = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model),
        LoraConfig(**wanted, init_lora_weights=False, task_type="CAUSAL_LM"),
    )
    network.save_pretrained(folder, save_embedding_layers=False)
    return folder


def make_run(runs: Path, name: str, model: Path, adapter: bool = True, **settings: Any) -> Path:
    """Write the run `name` of `model` into `runs`, by default with an adapter; return its folder.

    With `lora=False` and `adapter` it has a whole model, `model` itself.
    """
    data = runs.parent / "words.jsonl"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text('{"prompt": "say 1", "completion": "rank"}\n' * 4)
    given = {"model": str(model), "dataset": str(data), "run": name, "wandb": "off", **settings}
    run = resolve_run(given, runs)
    folder = runs / name
    write_run(run, folder / "run.yml")
    source = ModelSource(name=model.name, id=str(model), kind="folder")
    start = {
        "kind": "start",
        "model": local_folder(source, weights=True).fingerprint[:16],
        "precision": "fp32",
    }
    (folder / "metrics.jsonl").write_text(json.dumps(start) + "\n")
    if adapter and run.settings.lora:
        make_adapter(model, folder / "adapter")
    elif adapter:
        AutoModelForCausalLM.from_pretrained(model).save_pretrained(folder / "model")
        AutoTokenizer.from_pretrained(model).save_pretrained(folder / "model")
    return folder
