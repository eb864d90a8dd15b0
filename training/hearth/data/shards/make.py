"""Tokenises a text corpus into token shards.

As in llm.c's files each document begins with the tokenizer's border token and documents follow each
other without padding. All shards appear at once, in a new folder, when everything is tokenised.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.files import alone, read_object, replaced_folder
from hearth.data.documents import drawn_by_hash, examples
from hearth.data.findings import Findings
from hearth.data.formats import Records, open_records
from hearth.data.locate import ShardFiles, locate
from hearth.data.shards.files import bin_header
from hearth.data.template import tokenizer_fingerprint

RECORD = "corpus.json"
"""File beside the shards: what they were made of, and how many tokens they have."""

_BATCH = 1000
_EVERY = 10.0


@dataclass(frozen=True)
class Order:
    """A request for shards.

    Attributes:
        corpus: files and Hub data sets, as the setting `dataset` takes them.
        out: folder to be made.
        name: first part of the names of the shards.
        shard_tokens: tokens of a shard; the last one has the rest.
        held_out: fraction of the documents, drawn by hash, for the validation shards; marks of a
            file win.
    """

    corpus: tuple[str, ...]
    out: Path
    name: str
    shard_tokens: int = 100_000_000
    held_out: float = 0.01


@dataclass
class _Writer:
    """Writes the tokens of one split into numbered shards."""

    stem: Path
    dtype: np.dtype
    shard_tokens: int
    sizes: dict[str, int] = field(default_factory=dict)
    _waiting: list[np.ndarray] = field(default_factory=list)
    _count: int = 0

    @property
    def tokens(self) -> int:
        """Number of tokens so far."""
        return sum(self.sizes.values()) + self._count

    def add(self, tokens: np.ndarray) -> None:
        """Add the tokens of a document, which may continue in the next shard."""
        while len(tokens):
            part = tokens[: self.shard_tokens - self._count]
            self._waiting.append(part)
            self._count += len(part)
            tokens = tokens[len(part) :]
            if self._count == self.shard_tokens:
                self.flush()

    def flush(self) -> None:
        """Write the tokens that wait, if there are any, to the next shard."""
        if not self._count:
            return
        path = self.stem.with_name(f"{self.stem.name}_{len(self.sizes):06}.bin")
        with path.open("wb") as file:
            bin_header(self._count, self.dtype).tofile(file)
            np.concatenate(self._waiting).astype(self.dtype).tofile(file)
        self.sizes[path.name] = self._count
        self._waiting, self._count = [], 0


def make_shards(order: Order, tokenizer: Any, say: Callable[[str], None]) -> dict[str, int]:
    """Write the shards of `order`, and return the number of tokens of each by its name.

    Shards that an earlier call has made of the same corpus are kept.

    Raises `DataError` with the problems found in the corpus, or if the folder holds other things.
    """
    border = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    if not tokenizer.is_fast or border is None:
        raise DataError(
            f"{tokenizer.name_or_path}: its tokenizer has no tokenizer.json, or no token that "
            "begins or ends a text; choose a model that has both"
        )
    corpus = []
    for name in order.corpus:
        found = locate(name)
        if isinstance(found, ShardFiles):
            raise DataError(f"{name}: these are token shards already; give text")
        corpus.append(open_records(found))
    made_of = [[records.sha256 for records in corpus], tokenizer_fingerprint(tokenizer)]
    made_of += [order.name, order.shard_tokens, order.held_out]
    key = hashlib.sha256(json.dumps(made_of).encode()).hexdigest()
    try:
        order.out.parent.mkdir(parents=True, exist_ok=True)
        with alone(order.out.parent):
            if order.out.exists():
                record = read_object(order.out / RECORD) or {}
                if record.get("key") == key:
                    say(f"{order.out}: the shards of this corpus are there already")
                    return record["shards"]
                raise DataError(
                    f"{order.out}: this folder is there already and holds other things; remove it, "
                    "or give another one by --out"
                )
            with replaced_folder(order.out) as folder:
                sizes = _write(order, corpus, tokenizer, border, folder, say)
                (folder / RECORD).write_text(json.dumps({"key": key, "shards": sizes}, indent=1))
            return sizes
    except OSError as error:
        raise DataError(
            f"{error.filename or order.out}: the shards cannot be written "
            f"({error.strerror or error}); free some space, or give another folder by --out"
        ) from error


def _write(
    order: Order,
    corpus: Sequence[Records],
    tokenizer: Any,
    border: int,
    folder: Path,
    say: Callable[[str], None],
) -> dict[str, int]:
    """Write all shards into `folder`; return the tokens of each."""
    dtype = np.dtype("<u2" if len(tokenizer) <= 1 << 16 else "<u4")
    train, val = (
        _Writer(folder / f"{order.name}_{split}", dtype, order.shard_tokens)
        for split in ("train", "val")
    )
    started = reported = time.monotonic()
    for held_out, texts in _batches(corpus, order.held_out):
        if not texts:
            continue
        # Text that reads like a special token, such as <|endoftext|>, must not become one.
        how = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        ids = tokenizer(texts, **how).input_ids
        for kept, tokens in zip(held_out, ids, strict=True):
            (val if kept else train).add(np.array([border, *tokens], dtype))
        if time.monotonic() - reported > _EVERY:
            reported, count = time.monotonic(), train.tokens + val.tokens
            say(f"{count} tokens, {count / (reported - started):.0f} a second")
    if not train.tokens:
        raise DataError(
            f"{corpus[0].name}: there is nothing to train on: every text is blank or held out "
            f"(--held-out {order.held_out:g})"
        )
    train.flush()
    val.flush()
    return train.sizes | val.sizes


def _batches(corpus: Sequence[Records], fraction: float) -> Iterator[tuple[list[bool], list[str]]]:
    """Yield batches of texts, and for each text whether it is held out; blank ones are left out.

    Raises `DataError` with the problems of a file after its last text.
    """
    for records in corpus:
        findings = Findings(records.name, records.files)
        source = examples(records, findings)
        while batch := list(islice(source, _BATCH)):
            for line, example in batch:
                if example.messages:
                    findings.add(
                        line,
                        "this is a conversation, not a text; give the file to `hearth train` as "
                        f"it is: --dataset {records.name}",
                        cause="conversation",
                    )
            if findings:
                continue  # read the rest only to find further problems
            texts = [example for _, example in batch if not example.empty]
            drawn = drawn_by_hash(np.array([each.hash for each in texts], np.uint64), fraction)
            yield (
                [
                    by_hash if each.held_out is None else each.held_out
                    for each, by_hash in zip(texts, drawn.tolist(), strict=True)
                ],
                [each.text for each in texts],
            )
        findings.raise_any()
