"""The models of the bench, with random weights, and rows that fill them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from support.tiny_model import make_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

SIZES: dict[str, dict[str, int]] = {
    "small": {
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 16_384,
    },
    "middle": {
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "vocab_size": 32_000,
    },
    "large": {
        "hidden_size": 1280,
        "intermediate_size": 3584,
        "num_hidden_layers": 20,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "vocab_size": 32_000,
    },
}
"""Sizes of a Llama, as its config names them."""


def make_model(folder: Path, size: str) -> Path:
    """Write a Llama with random weights and a token a byte to `folder`, and return it."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        **SIZES[size],
        max_position_embeddings=2048,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_data(path: Path, rows: int, length: int) -> Path:
    """Write texts that fill so many rows of `length` tokens, and return the file."""
    letters = np.random.default_rng(0).integers(97, 123, (rows, length - 2), dtype=np.uint8)
    with path.open("w", encoding="ascii") as file:
        for row in letters:
            file.write(json.dumps({"text": bytes(row).decode("ascii")}) + "\n")
    return path
