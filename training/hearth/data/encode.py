"""From examples to tokens, each with a mark whether it carries loss, and a guard over the marks.

An answer carries loss, with the token that ends its turn, in every turn. In a plain text all tokens
carry loss; it ends with the end-of-sequence token. Padding is added only later, so it never carries
loss, even if the padding token is the end-of-sequence token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearth.data.answers import Chat, Region, one_of, regions_of
from hearth.data.findings import Problem
from hearth.data.messages import Example, Message
from hearth.data.template import ChatTemplate

RENDERED = "texts with special tokens of their own, which are kept"


@dataclass(frozen=True)
class Encoded:
    """Tokens of one example, int32, and for each whether it carries loss.

    `notes` are remarks for the user, which are counted over all examples.
    """

    ids: np.ndarray
    learned: np.ndarray
    notes: tuple[str, ...] = ()


def encode_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens of a conversation, ending with the prompt for the assistant's answer.

    Raises `Problem` if the chat template refuses it.
    """
    template = ChatTemplate(tokenizer)
    text = template.render(messages, True)
    pieces = [(text, False)]
    if _holds_control(template, messages):
        regions = regions_of(messages, template.render, text, True)
        pieces = _pieces(template, messages, regions, text)
    return _joined(pieces, _tokens(tokenizer, pieces))[0].tolist()


def encode(
    tokenizer: Any, examples: Sequence[Example], stops: Sequence[int] = ()
) -> list[Encoded | Problem]:
    """Return the tokens of each example, or the `Problem` that keeps it from being trained on.

    `stops` are the tokens that stop the model's generation, besides the tokenizer's own.
    """
    template = ChatTemplate(tokenizer, stops)
    chats = {at: each for at, each in enumerate(examples) if each.messages}
    texts = {at: each.text for at, each in enumerate(examples) if not each.messages}
    encoded = dict(zip(texts, _encode_texts(template, list(texts.values())), strict=True))
    encoded |= dict(zip(chats, _encode_chats(template, list(chats.values())), strict=True))
    return [encoded[at] for at in range(len(examples))]


def _encode_chats(template: ChatTemplate, examples: Sequence[Example]) -> list[Encoded | Problem]:
    found: list[tuple[Chat, list[_Piece]] | Problem] = []
    for example in examples:
        try:
            chat = template.chat(example)
            found.append((chat, _pieces(template, example.messages, chat.regions, chat.text)))
        except Problem as problem:
            found.append(problem)
    pieces = [piece for each in found if not isinstance(each, Problem) for piece in each[1]]
    tokens = _tokens(template.tokenizer, pieces)
    encoded: list[Encoded | Problem] = []
    for each in found:
        if isinstance(each, Problem):
            encoded.append(each)
            continue
        chat, own = each
        try:
            encoded.append(_marked(template, chat, *_joined(own, tokens)))
        except Problem as problem:
            encoded.append(problem)
    return encoded


_Piece = tuple[str, bool]
"""A piece of a rendered conversation, and whether it is words alone, without special tokens."""


def _holds_control(template: ChatTemplate, messages: Sequence[Message]) -> bool:
    """Return whether a text of `messages` contains a control token of the template."""
    return any(
        token in text for each in messages for text in each.texts for token in template.control
    )


def _pieces(
    template: ChatTemplate, messages: Sequence[Message], regions: Sequence[Region], text: str
) -> list[_Piece]:
    """Split the rendered `text` so that a control token in a message's own words is words.

    Raises `Problem` if it cannot be distinguished from those of the template.
    """
    if not _holds_control(template, messages):
        return [(text, False)]
    control = re.compile(one_of(sorted(template.control)))
    pieces, at = list[_Piece](), 0
    for region, message in sorted(
        zip(regions, messages, strict=True), key=lambda each: each[0].start
    ):
        if not _holds_control(template, [message]):
            continue
        for found in control.finditer(text, region.start, region.stop):
            if control.search(region.glue):
                raise Problem(
                    f"a message of role {message.role} contains {found[0]}, which this model reads "
                    "as the structure of a conversation; write it otherwise"
                )
            pieces += [(text[at : found.start()], False), (found[0], True)]
            at = found.end()
    return [*pieces, (text[at:], False)]


def _tokens(tokenizer: Any, pieces: Sequence[_Piece]) -> dict[_Piece, Any]:
    """Return the token ids of each of `pieces`, and for each token its first and last character."""
    tokens: dict[_Piece, Any] = {}
    for words in (False, True):
        if wanted := list(dict.fromkeys(piece for piece in pieces if piece[1] == words)):
            batch = tokenizer(
                [text for text, _ in wanted],
                add_special_tokens=False,
                return_offsets_mapping=True,
                return_attention_mask=False,
                split_special_tokens=words,
                verbose=False,
            )
            found = zip(batch.input_ids, batch.offset_mapping, strict=True)
            tokens |= dict(zip(wanted, found, strict=True))
    return tokens


def _joined(
    pieces: Sequence[_Piece], tokens: Mapping[_Piece, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the token ids of all `pieces`, and each one's first and last character in the text."""
    ids, starts, stops, at = list[int](), list[int](), list[int](), 0
    for piece in pieces:
        own, offsets = tokens[piece]
        ids += own
        starts += [at + start for start, _ in offsets]
        stops += [at + stop for _, stop in offsets]
        at += len(piece[0])
    return np.array(ids, np.int32), np.array(starts, np.int64), np.array(stops, np.int64)


def _marked(
    template: ChatTemplate, chat: Chat, ids: np.ndarray, starts: np.ndarray, stops: np.ndarray
) -> Encoded:
    """Return the tokens of `chat` with its answers marked, up to the last of them.

    `starts` and `stops` are the characters of each token. Raises `Problem` unless the tokens of
    each answer are its characters, and end with its end and no other: nothing trains on a guess.
    """
    tokenizer = template.tokenizer
    learned = np.zeros(len(ids), dtype=bool)
    ends = set(tokenizer.convert_tokens_to_ids(sorted(template.stops)))
    for answer in chat.answers:
        own = np.flatnonzero((stops > answer.start) & (starts < answer.stop))
        written = chat.text[answer.start : answer.stop]
        covered = chat.text[starts[own[0]] : stops[own[-1]]] if len(own) else ""
        if covered.strip() != written.strip():
            raise Problem(
                f"the answer in message {answer.message + 1} shares a token with the template "
                "around it, so it cannot be marked; choose a model with another template"
            )
        end = tokenizer.convert_tokens_to_ids(answer.end)
        inside = [token for token in ids[own[:-1]].tolist() if token in ends]
        if ids[own[-1]] != end or inside:
            token = tokenizer.convert_ids_to_tokens(inside[0]) if inside else answer.end
            raise Problem(
                f"the answer in message {answer.message + 1} must end with {answer.end}, and has "
                f"{token} elsewhere: the model would learn to stop there; write it otherwise"
            )
        learned[own] = True
    length = int(np.flatnonzero(learned)[-1]) + 1 if learned.any() else 0
    return Encoded(ids[:length], learned[:length], chat.notes)


def _encode_texts(template: ChatTemplate, texts: Sequence[str]) -> list[Encoded | Problem]:
    """Return the tokens of plain texts; all of them carry loss.

    A text that begins with a control token, or ends with an end, was rendered before: its special
    tokens are kept, and no second beginning or end is added. Elsewhere they are words.
    """
    tokenizer = template.tokenizer
    kept = rendered_before(template, texts)
    stops = set(tokenizer.convert_tokens_to_ids(sorted(template.stops)))
    encoded: dict[int, Encoded] = {}
    for rendered in (False, True):
        chosen = [at for at, was in enumerate(kept) if was == rendered]
        if not chosen:
            continue
        batch = tokenizer(
            [texts[at].rstrip() if rendered else texts[at] for at in chosen],
            return_attention_mask=False,
            split_special_tokens=not rendered,
            verbose=False,
        )
        for at, ids in zip(chosen, batch.input_ids, strict=True):
            if rendered and ids[:2] == [tokenizer.bos_token_id] * 2:
                ids = ids[1:]
            if rendered and len(ids) > 1 and {*ids[-2:]} <= stops:
                ids = ids[:-1]
            if not ids or ids[-1] not in (stops if rendered else {tokenizer.eos_token_id}):
                ids = [*ids, tokenizer.eos_token_id]
            notes = (RENDERED,) if rendered else ()
            learned = np.ones(len(ids), dtype=bool)
            encoded[at] = Encoded(np.array(ids, dtype=np.int32), learned, notes)
    return [encoded[at] for at in range(len(texts))]


def rendered_before(template: ChatTemplate, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether a chat template has written it."""
    control, stops = tuple(template.control), tuple(template.stops)
    return [text.lstrip().startswith(control) or text.rstrip().endswith(stops) for text in texts]
