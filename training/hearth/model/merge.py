"""Makes one plain model of a run's adapter and the model that it was trained on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from hearth.base.errors import ModelError
from hearth.base.files import level_modes
from hearth.config import preset_names, read_run
from hearth.data import ensure_chat_template
from hearth.model.code import code_to_run
from hearth.model.fetch import fetch_model

Say = Callable[[str], None]


def merge_run(
    run_folder: Path,
    to: Path,
    models: Path,
    say: Say,
    best: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Write to `to` the model that the run in `run_folder` has made.

    Each adapted weight W becomes W + (alpha / rank) * B @ A (LoRA, arXiv:2106.09685, section 4.1),
    in the numbers in which the base model is stored: after training in 4 bits too, so that nothing
    is lost but what those 4 bits lacked. `to` appears when it is whole, or not at all.

    Args:
        run_folder: of the run, with `run.yml` and `adapter/`.
        to: the new folder.
        models: the cache in which the base model lies or is fetched to.
        say: is told what is done.
        best: take `best/`, of the lowest held-out loss, and not the end of the run.
        trust_remote_code: let code run that comes with the base model, if that needs it.

    Raises:
        HearthError: if there is no such adapter, the base model cannot be had or cannot take it
            in, or `to` exists, cannot be written or has too little space.
    """
    adapter = _adapter(run_folder, "best" if best else "adapter")
    if to.exists():
        raise ModelError(f"{to} exists already; name a folder that does not, or delete this one")
    run = read_run(run_folder / "run.yml")
    base = fetch_model(run.source, models, say, known=preset_names()).path
    own_code = bool(code_to_run(base, run.source.id, trust_remote_code))
    if hasattr(AutoConfig.from_pretrained(base, trust_remote_code=own_code), "quantization_config"):
        raise ModelError(
            f"{base}: its weights are quantised and cannot take an adapter in; train on the "
            "model in 16 bits (with load_in_4bit=true where memory is small)"
        )
    try:
        _check_space(base, to)
        say(f"merging {adapter} into {base}")
        unfinished = to.with_name(f".{to.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a call that was killed
        unfinished.mkdir()
        try:
            _write(base, own_code, adapter, unfinished)
            unfinished.rename(to)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    except OSError as error:
        raise ModelError(
            f"{to} cannot be written ({error.strerror or error}); free some space or name another "
            "folder"
        ) from error
    say(f"the merged model is in {to}")


def _adapter(run_folder: Path, name: str) -> Path:
    """Return the adapter `name` of a run. Raises `ModelError` with what there is instead."""
    folder = run_folder / name
    if (folder / "adapter_config.json").is_file():
        return folder
    if not (run_folder / "run.yml").is_file():
        raise ModelError(f"{run_folder}: this is no run; name a folder that holds run.yml")
    for whole in (folder, run_folder / "model"):
        if (whole / "config.json").is_file():
            raise ModelError(f"{whole}: this run trained the model itself; use it as it is")
    raise ModelError(
        f"{folder}: there is no such adapter; "
        + (
            "only a run with eval_every keeps its best"
            if name == "best"
            else f"the run has not ended; go on with it by resume={run_folder.name}"
        )
    )


def _check_space(base: Path, to: Path) -> None:
    """Raise `ModelError` if the disk of `to` has less space left than the base model takes."""
    needed = sum(path.stat().st_size for path in base.glob("*") if path.is_file())
    to.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(to.parent).free
    if free < needed:
        raise ModelError(
            f"{to}: the merged model takes {needed >> 20} MiB and {free >> 20} MiB are free; free "
            "some space or name another folder"
        )


def _untie_if_adapted(model: Any) -> None:
    """Give an adapted head weights of its own where it shares the embeddings'.

    The adapter changes what the head makes of a vector, not what a token is looked up as; merged
    into weights that both use, it would change both.
    """
    head = model.get_output_embeddings()
    if isinstance(head, BaseTunerLayer):
        shared = head.get_base_layer()
        if shared.weight is model.get_input_embeddings().weight:
            shared.weight = torch.nn.Parameter(shared.weight.clone())
            model.config.get_text_config().tie_word_embeddings = False
            model.config.tie_word_embeddings = False


def _write(base: Path, own_code: bool, adapter: Path, folder: Path) -> None:
    """Write the merged model with its tokenizer and chat template into `folder`, to the disk."""
    model: Any = AutoModelForCausalLM.from_pretrained(
        base, dtype="auto", local_files_only=True, trust_remote_code=own_code
    )
    with torch.no_grad():
        adapted = PeftModel.from_pretrained(model, adapter)
        _untie_if_adapted(model)
        merged = adapted.merge_and_unload(safe_merge=True)
    merged.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=own_code)
    ensure_chat_template(tokenizer)  # as the trainer did
    tokenizer.save_pretrained(folder)
    level_modes(folder)
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
