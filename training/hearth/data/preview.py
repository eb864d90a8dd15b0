"""The tokens of examples as they are trained, decoded one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from hearth.data.rows import Document, Rows
from hearth.data.shown import Shown, Stretch


def shown(tokenizer: Any, document: Document) -> Shown:
    """Return `document` with its tokens decoded."""
    ids, learned = document.ids.tolist(), document.learned.tolist()
    stretches = tuple(
        Stretch(flag, _decoded(tokenizer, [token for token, _ in each]))
        for flag, each in groupby(zip(ids, learned, strict=True), itemgetter(1))
    )
    return Shown(document.source, len(ids), sum(learned), stretches)


def first_examples(tokenizer: Any, rows: Rows, count: int) -> list[Shown]:
    """Return the first `count` examples of `rows` as they are trained, in the order of the data."""
    return [shown(tokenizer, document) for document in rows.documents(count)]


def _decoded(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Return `ids` as texts, one a token; tokens that make one character together are one text."""
    texts, pending = list[str](), list[int]()
    for token in ids:
        pending.append(token)
        text = tokenizer.decode(pending, clean_up_tokenization_spaces=False)
        if not text.endswith("\ufffd") or len(pending) == 4:  # a character has four bytes at most
            texts.append(text)
            pending = []
    if pending:
        texts.append(tokenizer.decode(pending, clean_up_tokenization_spaces=False))
    return tuple(texts)
