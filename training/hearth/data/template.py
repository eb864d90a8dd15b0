"""Tokenises examples and marks the tokens that carry loss.

A conversation is rendered by the model's own chat template; the assistant's answers carry loss,
each with the token that ends its turn, in every turn. In a plain text all tokens carry loss; it
ends with the end-of-sequence token. Padding is added only later, so it never carries loss, even if
the padding token is the end-of-sequence token.

A model without a chat template (a base model) gets this one:

    User: What is NCCL?
    Assistant: A library.<eos>
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
import numpy as np

from hearth.base.errors import ModelError
from hearth.data.columns import Example, Message
from hearth.data.findings import Problem

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}\n\n"
    "{% elif message['role'] == 'user' %}User: {{ message['content'] }}\n"
    "{% else %}Assistant: {{ message['content'] }}{{ eos_token }}\n"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
# Llama 3's template writes today's date into the prompt unless it is given one: two nodes, or
# two days, would see different tokens.
CONSTANTS = {"date_string": "26 Jul 2024"}


@dataclass(frozen=True)
class Encoded:
    """Tokens of one example, int32, and for each whether it carries loss."""

    ids: np.ndarray
    learned: np.ndarray


def ensure_chat_template(tokenizer: Any) -> None:
    """Give `tokenizer` the plain template if it has none.

    Raises `ModelError` if it has no fast version or no end-of-sequence token.
    """
    if not tokenizer.is_fast:
        raise ModelError(
            f"{tokenizer.name_or_path}: its tokenizer has no tokenizer.json, which is needed to "
            "find the answers among the tokens; choose a model that has one"
        )
    if tokenizer.eos_token_id is None:
        raise ModelError(
            f"{tokenizer.name_or_path}: its tokenizer has no end-of-sequence token, so the model "
            "could not learn to stop; set eos_token in tokenizer_config.json"
        )
    if tokenizer.chat_template is None:
        starts = (
            "{{ bos_token }}" if tokenizer("").input_ids[:1] == [tokenizer.bos_token_id] else ""
        )
        tokenizer.chat_template = starts + PLAIN_TEMPLATE


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a checksum of all parts of the tokenizer that affect an example's tokens."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    # These two hold state of the last call, not of the tokenizer.
    backend["truncation"] = backend["padding"] = None
    parts = [
        backend,
        tokenizer.chat_template,
        tokenizer.eos_token_id,
        tokenizer.bos_token_id,
        _special_pattern(tokenizer).pattern,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def encode_prompt(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the tokens of a conversation, ending with the prompt for the assistant's answer."""
    text = render(tokenizer, messages, add_generation_prompt=True)
    return tokenizer(text, add_special_tokens=False).input_ids


def end_of_turn(tokenizer: Any) -> int | None:
    """Return the special token that ends an answer in the chat template; None if there is none."""
    special = _special_pattern(tokenizer)
    try:
        chat = _find_answers(tokenizer, special, [("user", "1"), ("assistant", "2")])
    except Problem:
        return None
    start, end = chat.spans[-1]
    last = [found[0] for found in special.finditer(chat.text, start, end) if found.end() == end]
    return tokenizer.convert_tokens_to_ids(last[0]) if chat.ended and last else None


def speaks_plainly(tokenizer: Any) -> bool:
    """Return whether `tokenizer` has the plain template, from `ensure_chat_template`."""
    return str(tokenizer.chat_template).endswith(PLAIN_TEMPLATE)


def encode(tokenizer: Any, examples: Sequence[Example]) -> list[Encoded | Problem]:
    """Return the tokens of each example, or the `Problem` if the template cannot render it."""
    special = _special_pattern(tokenizer)
    prepared: list[_Chat | str | Problem] = []
    for example in examples:
        try:
            chat = example.messages and _find_answers(tokenizer, special, example.messages)
            prepared.append(chat or example.text)
        except Problem as problem:
            prepared.append(problem)
    chats = iter(_encode_chats(tokenizer, [each for each in prepared if isinstance(each, _Chat)]))
    texts = iter(_encode_texts(tokenizer, [each for each in prepared if isinstance(each, str)]))
    return [
        each if isinstance(each, Problem) else next(chats if isinstance(each, _Chat) else texts)
        for each in prepared
    ]


@dataclass(frozen=True)
class _Chat:
    """A rendered conversation and the character spans that carry loss.

    `ended`: whether the last span ends with the template's own end-of-turn token.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    ended: bool


def _find_answers(tokenizer: Any, special: re.Pattern[str], messages: Sequence[Message]) -> _Chat:
    """Render `messages` and find each answer in the text.

    An answer starts at the end of the template's prompt for it and ends with the first special
    token after its content, which ends the turn.
    """
    text = render(tokenizer, messages)
    spans, seen, end_of_turn = [], 0, None
    for index, (role, content) in enumerate(messages):
        at = text.find(content.strip(), seen) if role != "system" else -1
        if role == "assistant":
            before = messages[:index]
            prompt = render(tokenizer, before, add_generation_prompt=True) if before else ""
            if prompt and text.startswith(prompt):
                start = len(prompt)
                at = text.find(content.strip(), start)
            else:
                # Fall back to the position of the content: thinking models open a thought in the
                # prompt only; Mistral moves the system message to the last question; a greeting
                # has no messages before it, and templates do not render an empty list.
                start = at
            if start < 0:
                raise Problem(
                    "the model's chat template does not show where the answer in message "
                    f"{index + 1} begins"
                )
            # Templates trim white space; some remove an earlier answer's thoughts entirely.
            content_end = at + len(content.strip()) if at >= 0 else start
            following = messages[index + 1][1].strip() if index + 1 < len(messages) else ""
            limit = text.find(following, content_end) if following else -1
            end_of_turn = special.search(text, content_end, len(text) if limit < 0 else limit)
            seen = end_of_turn.end() if end_of_turn else content_end
            spans.append((start, seen))
        elif at >= 0:
            seen = at + len(content.strip())
    return _Chat(text, tuple(spans), ended=end_of_turn is not None)


def render(tokenizer: Any, messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
    """Return a conversation as text. Raises `Problem` if the chat template refuses it."""
    try:
        return tokenizer.apply_chat_template(
            [{"role": role, "content": content} for role, content in messages],
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            **CONSTANTS,
        )
    except (jinja2.TemplateError, ValueError) as error:
        raise Problem(f"the model's chat template refuses this conversation ({error})") from None


def _special_pattern(tokenizer: Any) -> re.Pattern[str]:
    """Return a pattern for all special tokens that prefers the longer of two with equal starts."""
    added = tokenizer.added_tokens_decoder.values()
    special = {token.content for token in added if token.special} | set(
        tokenizer.all_special_tokens
    )
    return re.compile("|".join(map(re.escape, sorted(special, key=lambda t: (-len(t), t)))))


def _encode_chats(tokenizer: Any, chats: list[_Chat]) -> list[Encoded]:
    if not chats:
        return []
    batch = tokenizer(
        [chat.text for chat in chats],
        add_special_tokens=False,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    encoded = []
    for chat, ids, offsets in zip(chats, batch.input_ids, batch.offset_mapping, strict=True):
        starts, ends = np.array(offsets, dtype=np.int64).reshape(-1, 2).T
        learned = np.zeros(len(ids), dtype=bool)
        for start, end in chat.spans:
            learned |= (ends > start) & (starts < end)
        # Tokens after the last answer carry no loss and precede none, so leave them out.
        length = int(np.flatnonzero(learned)[-1]) + 1 if learned.any() else 0
        ids, learned = np.array(ids[:length], dtype=np.int32), learned[:length]
        if not chat.ended and length:
            ids, learned = _with_eos(tokenizer, ids), np.append(learned, True)
        encoded.append(Encoded(ids, learned))
    return encoded


def _encode_texts(tokenizer: Any, texts: list[str]) -> list[Encoded]:
    if not texts:
        return []
    batch = tokenizer(texts, return_attention_mask=False, verbose=False)
    encoded = []
    for row in batch.input_ids:
        ids = np.array(row, dtype=np.int32)
        if not len(ids) or ids[-1] != tokenizer.eos_token_id:
            ids = _with_eos(tokenizer, ids)
        encoded.append(Encoded(ids, np.ones(len(ids), dtype=bool)))
    return encoded


def _with_eos(tokenizer: Any, ids: np.ndarray) -> np.ndarray:
    return np.append(ids, np.int32(tokenizer.eos_token_id))
