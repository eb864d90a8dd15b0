"""From token shards to rows for training and for evaluation."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearth.base.errors import DataError
from hearth.data.load import Beginning, TokenData
from hearth.data.shards.files import ShardFacts, ShardRows, examine, raise_shown

_SHOWN_TOKENS = 32
"""Tokens of the text that a sample goes on with."""


@dataclass(frozen=True)
class ShardReport:
    """Statistics of token shards.

    Attributes:
        shards: files of training tokens.
        held_out_shards: files of validation tokens.
        tokens: in the training rows; each row begins with the last token of the row before.
        left_out: training tokens behind the last whole row of each shard.
        fingerprint: checksum of files and rows; equal on nodes with the same shards.
    """

    shards: int
    held_out_shards: int
    rows: int
    held_out_rows: int
    tokens: int
    label_tokens: int
    left_out: int
    fingerprint: str

    def __str__(self) -> str:
        return (
            f"data: {self.shards} token shard{'s' * (self.shards > 1)}: {self.rows} rows, "
            f"{self.tokens} tokens, {self.label_tokens} learned, {self.left_out} left out at the "
            f"ends; {self.held_out_shards or 'no'} validation shard"
            f"{'s' * (self.held_out_shards != 1)}"
            + f": {self.held_out_rows} rows"
            * bool(self.held_out_shards)
        )


def load_shards(
    shards: Sequence[Path],
    validation: Sequence[Path],
    *,
    sequence_length: int,
    validation_tokens: int,
    vocabulary: int,
    cache: Path,
    say: Callable[[str], None] = print,
) -> TokenData:
    """Load training and validation shards as rows of `sequence_length` tokens.

    The first `validation_tokens` tokens of the validation shards are evaluated. `vocabulary` is the
    number of tokens that the model knows; checksums are kept in `cache`.

    Raises `DataError` with the problems found in all files.
    """
    facts = examine([*shards, *validation], cache, say)
    raise_shown(_foreign(facts, vocabulary))
    train = ShardRows(shards, sequence_length)
    held_out = ShardRows(validation, sequence_length, max(1, validation_tokens // sequence_length))
    for rows, paths, word in ((train, shards, "dataset"), (held_out, validation, "validation")):
        if paths and not len(rows):
            raise DataError(
                f"{word}: {paths[0]}{f' and {len(paths) - 1} more' * (len(paths) > 1)}: no shard "
                f"has as many tokens as a row (sequence_length {sequence_length}); lower "
                "sequence_length, or give longer shards"
            )
    report = ShardReport(
        shards=len(shards),
        held_out_shards=len(validation),
        rows=len(train),
        held_out_rows=len(held_out),
        tokens=int(train.tokens.sum()),
        label_tokens=int(train.label_tokens.sum()),
        left_out=train.left_out,
        fingerprint=_fingerprint(facts, shards, validation, sequence_length, len(held_out)),
    )
    say(str(report))
    return TokenData(train, held_out, report, functools.partial(_beginning, held_out))


def _beginning(rows: ShardRows) -> Beginning | None:
    """Return the first tokens of the validation shards, with room in the row for an answer."""
    if not len(rows):
        return None
    ids = rows.batch([0]).input_ids[0].tolist()
    shown = min(_SHOWN_TOKENS, len(ids) // 4)
    return Beginning(ids[:shown], ids[shown:])


def _foreign(facts: Mapping[Path, ShardFacts], vocabulary: int) -> list[str]:
    """Return a finding for each shard with a token id that the model does not know."""
    return [
        f"{path}: token {each.least if each.least < 0 else each.largest} is not one of the "
        f"model's {vocabulary} (its config.json: vocab_size); take the model whose tokenizer made "
        "the shards, or make them again: python -m hearth.data.shards --help"
        for path, each in facts.items()
        if each.least < 0 or each.largest >= vocabulary
    ]


def _fingerprint(
    facts: Mapping[Path, ShardFacts],
    shards: Sequence[Path],
    validation: Sequence[Path],
    sequence_length: int,
    held_out_rows: int,
) -> str:
    sums = [[facts[path].sha256 for path in paths] for paths in (shards, validation)]
    text = json.dumps([*sums, sequence_length, held_out_rows])
    return hashlib.sha256(text.encode()).hexdigest()
