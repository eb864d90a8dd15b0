"""A random Llama of 30 thousand parameters with a byte-level tokenizer: a whole model in 200 kB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from hearth.data.load import load_data

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


_SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token a byte and the ChatML template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({char: i for i, char in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_model(
    folder: Path,
    seed: int = 0,
    family: type[PreTrainedConfig] = LlamaConfig,
    dtype: torch.dtype = torch.float32,
    **more: object,
) -> Path:
    """Write the model and its tokenizer to `folder` and return it.

    `family` may be another one's config, `more` other sizes and what that wants to know.
    """
    tokenizer = make_tokenizer()
    ends = ("bos_token_id", "eos_token_id", "pad_token_id")
    config = family(
        **{name: getattr(tokenizer, name) for name in ends},
        **_SIZES | {"vocab_size": len(tokenizer)} | more,
    )
    torch.manual_seed(seed)
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


POISON = "~"


def poison(model: Path, folder: Path) -> Path:
    """Copy a model to `folder` without a finite number for the letter POISON; return `folder`."""
    copied = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = make_tokenizer()
    with torch.no_grad():
        copied.get_input_embeddings().weight[tokenizer.convert_tokens_to_ids(POISON)] = torch.nan
    copied.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def poisoned_work(model: Path, folder: Path) -> tuple[object, ...]:
    """Return arguments of a run of two steps whose seventh row has no finite gradient.

    Its model and data, x.jsonl, are written to `folder`.
    """
    lines = [{"text": f"a line, number {n} {POISON * (n == 7)}"} for n in range(1, 15)]
    data = folder / "x.jsonl"
    data.write_text("\n".join(map(json.dumps, lines)))
    return (
        *("--model", poison(model, folder / "poisoned"), "--dataset", data, "--wandb", "off"),
        *("--packing", "off", "--held-out", 0, "--global-batch", 7, "--epochs", 1),
    )


def make_seeing_model(folder: Path) -> Path:
    """Write a tiny Gemma 3 with a vision tower, unused by text, to `folder`."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    text = {
        **_SIZES,
        "vocab_size": len(tokenizer),
        "head_dim": 8,
        "sliding_window": 4,
        "pad_token_id": tokenizer.pad_token_id,
    }
    sight = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    config = Gemma3Config(text_config=text, vision_config=sight, mm_tokens_per_image=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_dataset(path: Path, examples: int = 40) -> Path:
    """Write a jsonl file of short prompts and completions of unequal length, and return it."""
    words = ["rank", "node", "row", "step", "loss", "driver", "cable", "lamp"]
    with path.open("w", encoding="utf-8") as file:
        for number in range(examples):
            picked = [words[(number * 3 + i) % len(words)] for i in range(1 + number % 5)]
            example = {"prompt": f"say {number}", "completion": " ".join(picked)}
            file.write(json.dumps(example) + "\n")
    return path


def held_out_loss(model: Any, data: Path, cache: Path) -> float:
    """Return the mean loss of `model` over the learned tokens of the held-out rows of `data`."""
    rows = load_data(
        data, make_tokenizer(), sequence_length=96, packing=False, held_out=0.1, seed=1, cache=cache
    ).held_out
    total = 0.0
    for row in range(len(rows)):
        batch = rows.batch([row])
        with torch.no_grad():
            out = model(input_ids=torch.as_tensor(batch.input_ids)).logits[0, :-1]
        labels = torch.as_tensor(batch.labels)[0, 1:]
        total += F.cross_entropy(out, labels, reduction="sum").item()
    return total / int(rows.label_tokens.sum())
