"""From a record's columns to an example: a conversation or a text.

| columns | becomes |
|---|---|
| `messages`: list of `{role, content}` | the conversation, roles system, user, assistant |
| `conversations`: list of `{from, value}` (ShareGPT) | the same; from is system, human or gpt |
| `prompt`, `completion` (two texts, or two lists of messages) | a question and its answer |
| `instruction`, `input` (may be missing or empty), `output` | a question and its answer |
| `text` | a plain text, all of whose tokens carry loss |

A `system` column beside the third and fourth puts a system message in front. A `split` column
assigns an example to `train` or `held_out`. Other columns are ignored.
"""

from __future__ import annotations

import json
from typing import Any

from hearth.data.findings import Problem
from hearth.data.messages import Example, Message

ACCEPTED = "messages, conversations, prompt + completion, instruction (+ input) + output, or text"
_CONVERSATIONS = ("messages", "conversations")
_ROLES = ("system", "user", "assistant")
_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant"}
_SPLITS = {"train": False, "held_out": True}


def to_example(fields: dict[str, Any]) -> Example:
    """Convert a record's columns to an example. Raises `Problem` if that fails."""
    held_out = _held_out(fields)
    if messages := _messages(fields):
        return Example(messages, held_out=held_out)
    if "text" in fields:
        return Example(text=_text(fields["text"], "text"), held_out=held_out)
    found = ", ".join(map(str, fields)) or "none"
    raise Problem(f"no usable columns (found {found}); use {ACCEPTED}")


def _messages(fields: dict[str, Any]) -> tuple[Message, ...]:
    """Return the conversation in a record's columns, or () if they hold none."""
    for column in _CONVERSATIONS:
        if column in fields:
            return _conversation(column, fields[column])
    if "prompt" in fields and "completion" in fields:
        question, answer = fields["prompt"], fields["completion"]
        if isinstance(question, list) and isinstance(answer, list):
            return _conversation("prompt + completion", question + answer)
        question, answer = _text(question, "prompt"), _text(answer, "completion")
    elif "instruction" in fields and "output" in fields:
        question = _text(fields["instruction"], "instruction")
        if extra := _text(fields.get("input", ""), "input").strip():
            question = f"{question}\n\n{extra}"
        answer = _text(fields["output"], "output")
    else:
        return ()
    system = _text(fields.get("system", ""), "system")
    start = (Message("system", system),) if system.strip() else ()
    return (*start, Message("user", question), Message("assistant", answer))


def _held_out(fields: dict[str, Any]) -> bool | None:
    if not fields.get("split"):
        return None
    try:
        return _SPLITS[fields["split"]]
    except (KeyError, TypeError):
        raise Problem(
            f"split is {fields['split']!r}; use 'train' or 'held_out', or rename that column"
        ) from None


def _conversation(column: str, value: Any) -> tuple[Message, ...]:
    if isinstance(value, str):  # csv has no lists, so a cell may hold a list as JSON
        try:
            value = json.loads(value)
        except ValueError:
            raise Problem(f"{column} is text, but not a JSON list of messages") from None
    if not isinstance(value, list) or not value:
        raise Problem(f"{column} must be a list of {{role, content}} with at least one answer")
    messages = tuple(_message(number, message) for number, message in enumerate(value, start=1))
    if not any(message.role == "assistant" for message in messages):
        raise Problem("no message has the role assistant, so there is no answer to train on")
    return messages


def _message(number: int, message: Any) -> Message:
    if isinstance(message, dict) and {"role", "content"} <= message.keys():
        role, content = message["role"], message["content"]
    elif isinstance(message, dict) and {"from", "value"} <= message.keys():
        role, content = message["from"], message["value"]
        if isinstance(role, str):
            role = _SHAREGPT_ROLES.get(role, role)
    else:
        raise Problem(
            f"message {number} must be an object with role and content, or from and value"
        )
    if role not in _ROLES:
        raise Problem(f"message {number} has the role {role!r}; use {', '.join(_ROLES)}")
    return Message(role, _text(content, f"the content of message {number}"))


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Problem(f"{what} is {_kind(value)}, not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Problem(
            f"{what} has half a surrogate pair at character {error.start + 1}, which is not text"
        ) from None
    return value


def _kind(value: Any) -> str:
    kinds = {list: "a list", dict: "an object", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), f"a {type(value).__name__}")
