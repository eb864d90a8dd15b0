"""Model folders for other programs: an adapter merged into its model, or configuration alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, GenerationConfig

from hearth.after.ollama import Messages, Turns, turns_of
from hearth.base.errors import ModelError
from hearth.base.files import level_modes
from hearth.data.findings import Problem
from hearth.data.messages import Message
from hearth.data.template import ChatTemplate, end_of_turn, ensure_chat_template
from hearth.model.compatibility import tokenizer_in
from hearth.model.fetch import Say
from hearth.model.merge_files import merge_files


def check_mergeable(base: Path, own_code: bool) -> None:
    """Raise `ModelError` if the weights of the model in `base` are quantised.

    `own_code`: whether the model's own code may run, here and below.
    """
    if hasattr(AutoConfig.from_pretrained(base, trust_remote_code=own_code), "quantization_config"):
        raise ModelError(
            f"{base}: an adapter cannot be merged into quantised weights; train on the model in "
            "16 bits (with load_in_4bit=on if memory is scarce)"
        )


def write_outline(model: Path, own_code: bool, folder: Path) -> Any:
    """Write configuration, tokenizer and chat template of the model in `model` to `folder`.

    Returns the tokenizer.
    """
    AutoConfig.from_pretrained(model, trust_remote_code=own_code).save_pretrained(folder)
    tokenizer = _write_tokenizer(model, own_code, folder)
    _level(folder, own_code)
    return tokenizer


def write_merged(
    base: Path,
    own_code: bool,
    adapter: Path,
    folder: Path,
    say: Say,
    half: bool = False,
) -> None:
    """Write the model in `base` with the `adapter` merged into it to `folder`.

    Each adapted weight W becomes W + (alpha / rank) * B @ A (LoRA, arXiv:2106.09685, section 4.1),
    with `rslora` and `dora` as their papers have it; after training in 4 or 8 bits too, so that
    merging loses nothing more than those did. The weights keep the type of the base model; with
    `half` they have GGUF's f16, which is finer than bf16.
    """
    merge_files(base, own_code, adapter, folder, say, torch.float16 if half else None)
    _write_tokenizer(base, own_code, folder)
    _level(folder, own_code)


def _write_tokenizer(model: Path, own_code: bool, folder: Path) -> Any:
    tokenizer = tokenizer_in(model, own_code)
    ensure_chat_template(tokenizer)  # as the trainer did
    tokenizer.save_pretrained(folder)
    return tokenizer


def _level(folder: Path, own_code: bool) -> None:
    """Give all files one mode, and name no code that the model does not need.

    Other programs would run it.
    """
    for name in () if own_code else ("config.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        if content.pop("auto_map", None):
            text = json.dumps(content, indent=2, ensure_ascii=False)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    level_modes(folder)


def turns_in(tokenizer: Any) -> Turns | None:
    """Return the tokenizer's chat template as plain turns, None if it is more than that."""
    # The programs that read GGUF put it in front by themselves where the tokenizer does.
    bos = tokenizer.bos_token if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id] else ""

    template = ChatTemplate(tokenizer)

    def rendered(messages: Messages, prompt: bool) -> str:
        try:
            text = template.render([Message(*each) for each in messages], prompt)
            return text.removeprefix(bos or "")
        except Problem as problem:
            raise ValueError(str(problem)) from None

    return turns_of(rendered)


def stops_of(model: Path, tokenizer: Any) -> list[str]:
    """Return the tokens that end an answer."""
    try:
        ends = GenerationConfig.from_pretrained(model).eos_token_id
    except OSError:
        ends = None
    ids = [tokenizer.eos_token_id, end_of_turn(tokenizer)]
    ids += ends if isinstance(ends, list) else [ends]
    return [tokenizer.convert_ids_to_tokens(each) for each in ids if each is not None]
