"""Converts a GGUF file to a model folder: bf16 safetensors, tokenizer, chat template.

It runs as its own process (`python -m hearth.model.convert FILE.gguf FOLDER`), so that its
memory, several times the model, is freed when it ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers import decoders, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from hearth.base.files import level_modes


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in `gguf` to `folder`."""
    reader = GGUFReader(gguf)
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, trust_remote_code=False
    )
    _repair_tokenizer(tokenizer, reader)
    tokenizer.save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, trust_remote_code=False
    )
    _repair_model(model, tokenizer)
    model.save_pretrained(folder)
    level_modes(folder)


def _value(reader: GGUFReader, key: str) -> Any:
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _repair_tokenizer(tokenizer: Any, reader: GGUFReader) -> None:
    """Set what transformers does not read from the file: special tokens, length, digits.

    It assumes the token ids 1 and 2 and would end answers with `<|im_start|>`.
    """
    for name, key in (
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("pad_token", "padding_token_id"),
    ):
        token_id = _value(reader, f"tokenizer.ggml.{key}")
        if token_id is not None:
            setattr(tokenizer, name, tokenizer.convert_ids_to_tokens(int(token_id)))
    architecture = _value(reader, "general.architecture")
    tokenizer.model_max_length = int(_value(reader, f"{architecture}.context_length"))
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.init_kwargs["clean_up_tokenization_spaces"] = False
    if _value(reader, "tokenizer.ggml.pre") == "smollm":
        # The model was trained with single digits (llama.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM).
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        backend.decoder = decoders.ByteLevel()


def _repair_model(model: PreTrainedModel, tokenizer: Any) -> None:
    """Mark the model as unquantised and give it the tokenizer's special tokens."""
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # This is the title in the GGUF file, which loaders would mistake for a path.
    model.config.__dict__.pop("_model_name_or_path", None)
    for config in (model.config, model.generation_config):
        config.bos_token_id = tokenizer.bos_token_id
        config.eos_token_id = tokenizer.eos_token_id
        config.pad_token_id = tokenizer.pad_token_id


if __name__ == "__main__":
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
