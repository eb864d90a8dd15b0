"""The model and the data of the bench: large enough that a row takes time, and all rows full."""

from __future__ import annotations

from pathlib import Path

from support.llama import make_full_texts
from support.tiny_model import make_model

LENGTH = 128
"""Tokens of a row."""


def make_work(folder: Path, rows: int) -> tuple[Path, Path]:
    """Write a Llama with random weights, and texts that fill `rows` rows; return both."""
    return make_small(folder / "llama"), make_full_texts(folder / "texts.jsonl", rows, LENGTH)


def make_small(folder: Path) -> Path:
    """Write the Llama to `folder`, and return it."""
    return make_model(
        folder,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=LENGTH,
    )
