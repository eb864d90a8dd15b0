"""A Llama of any size with random weights, and texts for it: for tests that need a real shape."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from support.tiny_model import make_tokenizer


def make_llama(folder: Path, hidden: int, layers: int) -> Path:
    """Write the model to `folder`, its heads 64 wide as fast kernels want, and return it.

    Its tokenizer has one token a byte.
    """
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=hidden // 128,
        max_position_embeddings=4096,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_texts(path: Path, count: int, length: int) -> Path:
    """Write texts that make rows of `length` tokens, every other one short; return the file."""
    words = ["rank", "node", "row", "step", "loss", "driver", "cable", "lamp"]
    with path.open("w", encoding="ascii") as file:
        for number in range(count):
            wanted = length - 2 if number % 2 else length // 5
            text = " ".join(words[(number * 3 + i * i) % len(words)] for i in range(wanted))
            file.write(json.dumps({"text": text[:wanted]}) + "\n")
    return path
