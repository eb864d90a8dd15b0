"""Checks of the two answers of a pair. No I/O."""

from __future__ import annotations

import numpy as np

from hearth.data.encode import Encoded
from hearth.data.findings import Problem
from hearth.data.messages import Example

EQUAL = "left out, as chosen and rejected are equal"
SPACE = "chosen and rejected differ in white space only"
SHORTER = "one answer is the beginning of the other, so that its length is learned"


def check_head(chosen: Encoded, rejected: Encoded) -> None:
    """Raise `Problem` unless both answers of a pair follow the same tokens."""
    head = min(int(np.argmax(each.learned)) for each in (chosen, rejected))
    if not np.array_equal(chosen.ids[:head], rejected.ids[:head]):
        raise Problem(
            "the model's chat template writes the conversation before the two answers in two "
            "ways, so that they do not answer the same question; choose a model with another "
            "template"
        )


def remark_on(
    chosen: Example, rejected: Example, chosen_tokens: Encoded, rejected_tokens: Encoded
) -> set[str]:
    """Return the remarks on a pair whose answers hardly differ: `EQUAL`, `SPACE` or `SHORTER`."""
    if np.array_equal(chosen_tokens.ids, rejected_tokens.ids):
        return {EQUAL}
    one, other = sorted(
        (_words(example) for example in (chosen, rejected)), key=lambda words: len(words)
    )
    if one == other:
        return {SPACE}
    return {SHORTER} if other.startswith(one) else set()


def _words(example: Example) -> str:
    """Return all learned texts of an example without white space."""
    texts = (text for each in example.messages if each.is_learned for text in each.texts)
    return "".join("".join(texts).split())
