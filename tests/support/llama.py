"""A Llama of any size with random weights, and texts for it: for tests that need a real shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from support.tiny_model import make_model


def make_llama(folder: Path, hidden: int, layers: int, **more: object) -> Path:
    """Write the model to `folder`, its heads 64 wide as fast kernels want, and return it.

    Its tokenizer has one token a byte. `more` are sizes that differ from those here.
    """
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "num_key_value_heads": hidden // 128,
        "max_position_embeddings": 4096,
    }
    return make_model(folder, dtype=torch.bfloat16, **sizes | more)


def make_texts(path: Path, count: int, length: int) -> Path:
    """Write texts that make rows of `length` tokens, every other one short; return the file."""
    words = ["rank", "node", "row", "step", "loss", "driver", "cable", "lamp"]
    texts = []
    for number in range(count):
        wanted = length - 2 if number % 2 else length // 5
        text = " ".join(words[(number * 3 + i * i) % len(words)] for i in range(wanted))
        texts.append(text[:wanted])
    return write_texts(path, texts)


def make_full_texts(path: Path, count: int, length: int) -> Path:
    """Write texts that fill `count` rows of `length` tokens, and return the file."""
    # The last token is the end of the text.
    letters = np.random.default_rng(0).integers(97, 123, (count, length - 1), dtype=np.uint8)
    return write_texts(path, (bytes(row).decode("ascii") for row in letters))


def write_texts(path: Path, texts: Iterable[str]) -> Path:
    """Write a data set of texts, and return the file."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path
