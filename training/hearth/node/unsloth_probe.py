"""One step of Unsloth on a tiny random Llama in 4 bits; prints a line of JSON when a part begins.

    python -m hearth.node.unsloth_probe FOLDER

Runs in a process of its own, in FOLDER, which holds the model and the code that Unsloth generates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hearth.base.entry import loading
from hearth.model.unsloth_environment import prepare_environment

_LENGTH = 64


def main(folder: Path) -> None:
    """Import Unsloth, load the model, add an adapter, and compute a forward and a backward pass."""
    _begin("import")
    prepare_environment(folder / "unsloth")
    with loading():
        from unsloth import FastLanguageModel  # first: it patches transformers
    _begin("load in 4 bits")
    model, _ = FastLanguageModel.from_pretrained(
        str(_write_llama(folder / "model")),
        max_seq_length=_LENGTH,
        load_in_4bit=True,
        local_files_only=True,
    )
    _begin("adapter")
    model = FastLanguageModel.get_peft_model(model, r=8, lora_alpha=16)
    FastLanguageModel.for_training(model)
    _begin("forward and backward")
    print(json.dumps({"loss": _step(model)}), flush=True)


def _begin(part: str) -> None:
    print(json.dumps({"part": part}), flush=True)


def _write_llama(folder: Path) -> Path:
    """Write a random Llama with a tokenizer of one token a byte to `folder`, and return it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(models.BPE({letter: place for place, letter in enumerate(letters)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=_LENGTH,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _step(model: Any) -> float:
    """Return the loss of one forward and backward pass.

    Raises `ArithmeticError` if the loss is not finite, or the adapter has no finite gradient.
    """
    import torch

    device = next(model.parameters()).device
    tokens = torch.arange(_LENGTH, device=device)[None]
    half = torch.bfloat16 if torch.cuda.get_device_capability()[0] >= 8 else torch.float16
    with torch.autocast(device.type, dtype=half):
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    total = sum(float(gradient.float().norm()) for gradient in gradients)
    if not (loss.isfinite() and 0 < total < float("inf")):
        raise ArithmeticError(f"the loss is {loss.item():.3g}, the adapter's gradient {total:.3g}")
    return loss.item()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
