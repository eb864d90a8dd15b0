"""Real text from this Python environment, a tokenizer trained on it, and a GPT without weights."""

from __future__ import annotations

import hashlib
import json
import pydoc_data.topics
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, PreTrainedTokenizerFast

VOCABULARY = 1024
POSITIONS = 64
END = "<|endoftext|>"
_LICENCES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")


def make_corpus(path: Path) -> int:
    """Write Python's help topics and the packages' descriptions and licences; return the letters.

    A text that several packages have is taken once.
    """
    texts = {hashlib.sha256(text.encode()).digest(): text for text in _texts() if text.strip()}
    with path.open("w", encoding="utf-8") as file:
        for text in texts.values():
            file.write(json.dumps({"text": text}) + "\n")
    return sum(map(len, texts.values()))


def _texts() -> Iterator[str]:
    yield from pydoc_data.topics.topics.values()
    for package in sorted(distributions(), key=lambda each: each.name.lower()):
        yield (package.read_text("METADATA") or "").partition("\n\n")[2]
        for file in package.files or ():
            if file.name.upper().startswith(_LICENCES) and file.locate().is_file():
                yield file.locate().read_text(encoding="utf-8", errors="replace")


def make_gpt(folder: Path, corpus: Path) -> Path:
    """Write the configuration of a GPT of 2 layers, and a byte-pair tokenizer for the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = corpus.read_text(encoding="utf-8").splitlines()
    tokenizer.train_from_iterator((json.loads(line)["text"] for line in lines), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END)
    fast.save_pretrained(folder)
    GPT2Config(
        architectures=["GPT2LMHeadModel"],
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=64,
        n_layer=2,
        n_head=4,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
    ).save_pretrained(folder)
    return folder
