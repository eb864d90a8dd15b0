"""The models of the bench, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from support.tiny_model import make_model

_SHAPE = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
SIZES = {
    "small": (512, 1408, 8, 8, 16_384),
    "middle": (768, 2048, 16, 12, 32_000),
    "large": (1280, 3584, 20, 20, 32_000),
}
"""Sizes of a Llama: as its config names them, and its vocabulary."""


def make_sized(folder: Path, size: str) -> Path:
    """Write a Llama of this size with a token a byte to `folder`, and return it."""
    *sizes, vocabulary = SIZES[size]
    return make_model(
        folder,
        dtype=torch.bfloat16,
        **dict(zip(_SHAPE, sizes, strict=True)),
        num_key_value_heads=4,
        vocab_size=vocabulary,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
    )
