"""From a record's columns to preferences: two answers to one question, or an answer and its label.

| columns | become |
|---|---|
| a question (see `columns`), `chosen` and `rejected`: texts, or lists of messages | a pair |
| `chosen` and `rejected`: whole conversations with a common head | a pair |
| a question and its answer, or a conversation, and `label` or `kto_tag` | a judged answer |

The objectives `dpo` and `orpo` learn pairs, `kto` judged answers, or pairs taken apart. Of a pair
the messages are learned that follow the common head, of a conversation with a label those behind
its last question. A text of turns that begin with `Human:` and `Assistant:` behind an empty line
counts as a conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any

from hearth.data.columns import (
    ANSWERS,
    CONVERSATIONS,
    LABELS,
    QUESTIONS,
    SIDES,
    TEXT,
    to_example,
)
from hearth.data.conversation import is_conversation, read_messages
from hearth.data.findings import Problem, as_switch, is_blank, parsed, printable, shown
from hearth.data.messages import Example, Message

PAIRED = ("dpo", "orpo")
"""Objectives that learn pairs."""

_TURN = re.compile(r"(?:\A|\n\n)\s*(Human|Assistant):")
_ROLES = {"Human": "user", "Assistant": "assistant"}
_BEFORE_ANSWERS = ("system", "developer", "user", "human", "prompter")
_OTHERS = {*CONVERSATIONS, *ANSWERS, *LABELS, TEXT}
_PAIR = "prompt, chosen and rejected"


def to_preferences(fields: Mapping[str, Any], objective: str) -> tuple[Example, ...]:
    """Convert a record's columns to the answers that `objective` learns from it.

    These are the chosen and the rejected one of a pair, or one answer with a label. Raises
    `Problem` if that fails.
    """
    if any(_holds(fields, name) for name in SIDES):
        return _pair(fields)
    if objective in PAIRED:
        raise Problem(_no_pair(fields, objective))
    return (_judged(fields, objective),)


def _holds(fields: Mapping[str, Any], name: str) -> bool:
    return fields.get(name) is not None


def _pair(fields: Mapping[str, Any]) -> tuple[Example, ...]:
    """Return the chosen and the rejected answer of a record; their common head is not learned."""
    if missing := [name for name in SIDES if not _holds(fields, name)]:
        other = next(name for name in SIDES if name not in missing)
        raise Problem(f"{missing[0]} is missing beside {other}; a pair needs both, so add it")
    examples = [_side(fields, name) for name in SIDES]
    one, other = (example.messages for example in examples)
    head = len([*takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False))])
    if one == other:
        head -= 1  # equal answers are left out, with their own remark
    for name, messages in zip(SIDES, (one, other), strict=True):
        if head < len(messages) and messages[head].role != "assistant":
            raise Problem(
                f"chosen and rejected differ in message {head + 1}, and that of {name} has the "
                f"role {messages[head].role}; both must answer the same question"
            )
    return tuple(
        replace(example, messages=_learned_from(head, example.messages), liked=liked)
        for example, liked in zip(examples, (True, False), strict=True)
    )


def _learned_from(first: int, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `messages` of which none before the one numbered `first` is learned."""
    head = (replace(each, learned=False) if each.is_learned else each for each in messages[:first])
    return (*head, *messages[first:])


def _prompt(fields: Mapping[str, Any]) -> str:
    """Return the column with the question of a pair, or "" if there is none."""
    names = [name for name in QUESTIONS if _holds(fields, name)]
    conversations = (name for name in CONVERSATIONS if is_conversation(fields.get(name)))
    return next(iter(names), "") or next(conversations, "")


def _side(fields: Mapping[str, Any], name: str) -> Example:
    """Return the conversation that ends with the answer in the column `name`."""
    value, question = _conversation_of(fields[name]), _prompt(fields)
    rest = {each: value for each, value in fields.items() if each not in {*_OTHERS, *SIDES}}
    others = _OTHERS & {each for each, value in fields.items() if not is_blank(value)}
    try:
        if isinstance(value, list) and not _is_answer(value):
            example = to_example(rest | {name: value}, [name], [])
            if question in QUESTIONS:
                example = _without_question(example, question, fields[question])
        elif question:
            if question in CONVERSATIONS:
                rest["prompt"] = parsed(fields[question], question)
            example = to_example(rest | {name: value}, [], [name])
            others -= {question}
        else:
            raise Problem(
                f"{name} has no question; add a column prompt, or make chosen and rejected whole "
                "conversations, lists of messages"
            )
    except Problem as problem:
        text = str(problem)
        raise Problem(text if name in text else f"{name}: {text}") from None
    return replace(example, unused=(*example.unused, *sorted(others)))


def _conversation_of(value: Any) -> Any:
    """Return `value`, or the messages that it is as one object, as JSON or as marked turns."""
    if isinstance(value, Mapping):
        return [value]
    if is_conversation(value):
        return parsed(value, "")
    if isinstance(value, str) and _TURN.match(value):
        _, *pieces = _TURN.split(value)
        turns = zip(pieces[::2], pieces[1::2], strict=True)
        return [{"role": _ROLES[role], "content": text.strip()} for role, text in turns]
    return value


def _is_answer(messages: list[Any]) -> bool:
    """Return whether `messages` begin with an answer, so that they follow a question."""
    first = messages[0] if messages and isinstance(messages[0], Mapping) else {}
    return first.get("role", first.get("from")) not in _BEFORE_ANSWERS


def _without_question(example: Example, question: str, value: Any) -> Example:
    """Return a whole conversation, whose question the column `question` may repeat.

    Raises `Problem` if the `value` of that column is another conversation.
    """
    if isinstance(value, list):
        if read_messages(question, value) != example.messages[: len(value)]:
            raise Problem(
                f"{question} and the whole conversation beside it begin differently; remove one "
                "of them"
            )
    elif value not in [message.content for message in example.messages]:
        return example
    return replace(example, unused=tuple(name for name in example.unused if name != question))


def _judged(fields: Mapping[str, Any], objective: str) -> Example:
    """Return the answer of a record that has a label."""
    name = next((name for name in LABELS if not is_blank(fields.get(name))), None)
    if name is None:
        raise Problem(_no_label(fields, objective))
    liked = as_switch(fields[name])
    if liked is None:
        raise Problem(
            f"{name} is {shown(fields[name])}; use true for an answer to prefer, and false for "
            "one to avoid"
        )
    example = to_example({each: value for each, value in fields.items() if each not in LABELS})
    if not example.messages:
        raise Problem(
            "text with a label is no answer to a question; write prompt and completion beside it"
        )
    messages = example.messages
    # Of a list of messages as completion all is learned; of one conversation its last turn.
    if not any(isinstance(fields.get(each), list) for each in ANSWERS):
        answers = [at for at, each in enumerate(messages) if each.role == "assistant"]
        asked = [at for at, each in enumerate(messages[: answers[-1]]) if each.role == "user"]
        messages = _learned_from(max(asked, default=0), messages)
    return replace(example, messages=messages, liked=liked)


def _no_pair(fields: Mapping[str, Any], objective: str) -> str:
    """Return the reason why a record without chosen and rejected is no pair."""
    if any(not is_blank(fields.get(name)) for name in LABELS) and _answers(fields):
        return (
            "this is a judged answer (with a label), not a pair; learn it with objective=kto, or "
            f"give {_PAIR} for objective={objective}"
        )
    if _answers(fields):
        return (
            f"this is one answer, and objective={objective} learns pairs; give {_PAIR}, or learn "
            "the answers with objective=sft"
        )
    return _other(fields, objective, _PAIR)


def _no_label(fields: Mapping[str, Any], objective: str) -> str:
    """Return the reason why a record without a label is no judged answer."""
    if _answers(fields):
        return (
            f"this answer has no label, and objective={objective} needs one; add label: true (to "
            "prefer) or false (to avoid), or learn the answers with objective=sft"
        )
    return _other(fields, objective, "prompt, completion and label")


def _answers(fields: Mapping[str, Any]) -> bool:
    """Return whether a record has an answer, so that `objective=sft` could learn it."""
    conversations = (is_conversation(fields.get(name)) for name in CONVERSATIONS)
    return any(_holds(fields, name) for name in ANSWERS) or any(conversations)


def _other(fields: Mapping[str, Any], objective: str, wanted: str) -> str:
    if isinstance(fields.get(TEXT), str):
        return (
            f"this is a plain text, and objective={objective} learns from answers; give {wanted}, "
            "or learn the text with objective=sft"
        )
    names = ", ".join(map(printable, fields)) or "none"
    return (
        f"no usable columns for objective={objective} (found {names}); use {wanted}, or name yours "
        f"by the setting columns, such as columns={wanted.rpartition(' ')[2]}=THEIRS"
    )
