"""The model and the data of the bench: large enough that a row takes time, and all rows full."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

LENGTH = 128
"""Tokens of a row."""


def make_model(folder: Path) -> Path:
    """Write a Llama with random weights and a token a byte to `folder`, and return it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="!", pad_token="!")
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast),
            hidden_size=192,
            intermediate_size=512,
            num_hidden_layers=8,
            num_attention_heads=6,
            num_key_value_heads=6,
            max_position_embeddings=LENGTH,
            eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_data(path: Path, rows: int) -> Path:
    """Write texts that fill so many rows and return the file."""
    letters = np.random.default_rng(0).integers(97, 123, (rows, LENGTH - 2), dtype=np.uint8)
    with path.open("w", encoding="ascii") as file:
        for row in letters:
            file.write(json.dumps({"text": bytes(row).decode("ascii")}) + "\n")
    return path
