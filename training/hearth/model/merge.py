"""Merges a run's adapter into the model that it was trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from transformers import AutoConfig, AutoTokenizer

from hearth.base.errors import ModelError
from hearth.base.files import bytes_below, level_modes, replaced_folder
from hearth.config import preset_names, read_run
from hearth.data.template import ensure_chat_template
from hearth.model.code import code_to_run
from hearth.model.fetch import fetch_model
from hearth.model.folder import check_space
from hearth.model.merge_files import merge_files

Say = Callable[[str], None]


def merge_run(
    run_folder: Path,
    to: Path,
    models: Path,
    say: Say,
    best: bool = False,
    trust_remote_code: bool = False,
) -> None:
    """Write the merged model of the run in `run_folder` to `to`.

    Each adapted weight W becomes W + (alpha / rank) * B @ A (LoRA, arXiv:2106.09685, section 4.1),
    with `rslora` and `dora` as their papers have it, in the base model's stored precision, after
    training in 4 or 8 bits too, so that merging loses nothing more than those did. `to` appears
    only when complete.

    `models` is the cache that holds the base model or receives it. With `best` the adapter with the
    lowest held-out loss is merged, instead of the final one. `trust_remote_code` allows the base
    model's own code to run, if the model needs it.

    Raises `HearthError` if there is no such adapter, if the base model cannot be obtained or
    merged, or if `to` exists, cannot be written or has too little space.
    """
    adapter = _adapter(run_folder, "best" if best else "adapter")
    if to.exists():
        raise ModelError(f"{to} exists already; name another folder, or delete this one")
    run = read_run(run_folder / "run.yml")
    base = fetch_model(run.source, models, say, known=preset_names()).path
    own_code = bool(code_to_run(base, run.source.id, trust_remote_code))
    if hasattr(AutoConfig.from_pretrained(base, trust_remote_code=own_code), "quantization_config"):
        raise ModelError(
            f"{base}: an adapter cannot be merged into quantised weights; train on the model in "
            "16 bits (with load_in_4bit=true if memory is scarce)"
        )
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        check_space(to.parent, bytes_below(base), "--to")
        say(f"merging {adapter} into {base}")
        with replaced_folder(to) as folder:
            _write(base, own_code, adapter, folder, say)
    except OSError as error:
        raise ModelError(
            f"{to} cannot be written ({error.strerror or error}); free some space or name another "
            "folder"
        ) from error
    say(f"the merged model is in {to}")


def _adapter(run_folder: Path, name: str) -> Path:
    """Return the folder of a run's adapter `name`. Raises `ModelError` if there is none."""
    folder = run_folder / name
    if (folder / "adapter_config.json").is_file():
        return folder
    if not (run_folder / "run.yml").is_file():
        raise ModelError(f"{run_folder}: this is no run; name a folder that holds run.yml")
    for whole in (folder, run_folder / "model"):
        if (whole / "config.json").is_file():
            raise ModelError(f"{whole}: this run trained the whole model; it needs no merging")
    raise ModelError(
        f"{folder}: there is no such adapter; "
        + (
            "only a run with eval_every keeps its best"
            if name == "best"
            else f"the run has not ended; finish it with resume={run_folder.name}"
        )
    )


def _write(base: Path, own_code: bool, adapter: Path, folder: Path, say: Say) -> None:
    """Write the merged model with tokenizer and chat template into `folder`."""
    merge_files(base, own_code, adapter, folder, say)
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=own_code)
    ensure_chat_template(tokenizer)  # as the trainer did
    tokenizer.save_pretrained(folder)
    level_modes(folder)
