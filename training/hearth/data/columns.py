"""From a record's columns to an example: a conversation or a text.

| columns | becomes |
|---|---|
| `messages`, or another of `CONVERSATIONS`: a list (see `conversation`) | the conversation |
| one of `QUESTIONS` and one of `ANSWERS`: texts, or lists of messages | a question, its answer |
| `text` | a plain text; all tokens carry loss |

The first row that fits is used, and in a row the first names. An answer within a question that is a
list is not learned. Beside a conversation or a question and its answer:

| column | becomes |
|---|---|
| `system`, `system_prompt` or `system_message` | a system message in front |
| `tools` or `functions` (see `conversation`) | the functions that may be called |
| `input` or `context` beside `instruction`, `context` beside `question` | more of the question |
| `history`: a list of [question, answer] | earlier turns, which are learned, too |
| `thought` or `reasoning_content` | the reasoning before the answer |
| `label: false`, `chosen` with `rejected` | a finding: these are preferences (see `preferences`) |

A `split` column assigns an example to `train` or `held_out`. Columns that hold something and are
not read are listed in `Example.unused`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hearth.data.conversation import is_conversation, read_messages, read_tools, unused_members
from hearth.data.findings import Problem, checked_text, is_blank, parsed, printable, shown
from hearth.data.messages import Example, Message

ACCEPTED = (
    "messages, conversations, prompt + completion, instruction (+ input) + output, "
    "question + answer, or text"
)
CONVERSATIONS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat")
QUESTIONS = ("prompt", "instruction", "question", "query", "input")
ANSWERS = ("completion", "output", "response", "answer")
TEXT = "text"
_SYSTEM = ("system", "system_prompt", "system_message")
_TOOLS = ("tools", "functions")
_THOUGHT = ("thought", "reasoning_content")
_MORE = {"instruction": ("input", "context"), "question": ("context",)}
LABELS = ("label", "kto_tag")
SIDES = ("chosen", "rejected")
_HISTORY, _SPLIT = "history", "split"
NAMES = (
    *(*CONVERSATIONS, *QUESTIONS, *ANSWERS, TEXT, *_SYSTEM, *_TOOLS, *_THOUGHT),
    *("context", _HISTORY, *LABELS, *SIDES, _SPLIT),
)
"""All names of columns that are read."""

_SPLITS = {"train": False, "held_out": True}


def shadowed(named: Collection[str]) -> set[str]:
    """Return the names that would be read instead of those that a person has `named`.

    These are other names for the same, and columns of the forms that come before.
    """
    slots = (CONVERSATIONS, QUESTIONS, ANSWERS, _SYSTEM, _TOOLS, _THOUGHT, LABELS)
    found = {name for slot in slots if set(slot) & set(named) for name in slot}
    if {*QUESTIONS, *ANSWERS, TEXT} & set(named):
        found |= {*CONVERSATIONS}
    if TEXT in named:
        found |= {*QUESTIONS, *ANSWERS}
    more = {each for name in named for each in _MORE.get(name, ())}
    return found - more - set(named)


def to_example(
    fields: Mapping[str, Any],
    conversations: Sequence[str] = CONVERSATIONS,
    answers: Sequence[str] = ANSWERS,
) -> Example:
    """Convert a record's columns to an example.

    `conversations` and `answers` are the names of the columns that hold them. Raises `Problem` if
    that fails.
    """
    try:
        return _example(_Columns(fields), conversations, answers)
    except RecursionError:
        raise Problem("a value is nested too deep; write it flatter") from None


class _Columns:
    """The columns of a record; remembers which were read."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields
        self._read: set[str] = set()

    def first(self, names: Iterable[str], blank: bool = False) -> str | None:
        """Return the first of `names` whose column holds something; with `blank` else any."""
        there = [name for name in names if self._fields.get(name) is not None]
        filled = [name for name in there if not is_blank(self._fields[name])]
        return next(iter(filled + (there if blank else [])), None)

    def peek(self, name: str) -> Any:
        """Return the value of a column, which does not count as read."""
        return self._fields.get(name)

    def read(self, name: str) -> Any:
        """Return the value of a column, which counts as read."""
        self._read.add(name)
        return self._fields.get(name)

    def text(self, name: str | None) -> str:
        """Read a column as text; "" if `name` is None."""
        return checked_text(self.read(name), name) if name else ""

    def names(self) -> str:
        """Return the names of all columns for a message."""
        return ", ".join(map(printable, self._fields)) or "none"

    def unread(self) -> tuple[str, ...]:
        """Return the names of the columns that hold something and were not read."""
        return tuple(
            printable(name)
            for name, value in self._fields.items()
            if name not in self._read and not is_blank(value)
        )


@dataclass(frozen=True)
class _Turns:
    """Messages of a record, and the names of members of them that were not read."""

    messages: tuple[Message, ...]
    unused: tuple[str, ...] = ()


def _example(columns: _Columns, conversations: Sequence[str], answers: Sequence[str]) -> Example:
    if columns.first(SIDES[:1]) and columns.first(SIDES[1:]):
        raise Problem(
            "chosen and rejected are preferences; learn them with objective=dpo (or orpo, kto), or "
            "learn the chosen answers alone with columns=completion=chosen, or "
            "columns=messages=chosen if they are whole conversations"
        )
    held_out = _held_out(columns.read(_SPLIT))
    for blank in (False, True):
        turns = _conversation(columns, conversations, blank)
        if turns := turns or _answered(columns, answers, blank):
            messages, tools = _framed(columns, turns.messages), _tools(columns, turns.messages)
            unused = (*columns.unread(), *turns.unused)
            return Example(messages, tools=tools, held_out=held_out, unused=unused)
        if columns.first([TEXT], blank):
            text = columns.text(TEXT)
            return Example(text=text, held_out=held_out, unused=columns.unread())
    raise Problem(
        f"no usable columns (found {columns.names()}); use {ACCEPTED}, or name yours by the "
        "setting columns, such as columns=question=THEIRS,answer=THEIRS"
    )


def _held_out(split: Any) -> bool | None:
    if is_blank(split):
        return None
    if isinstance(split, str) and split in _SPLITS:
        return _SPLITS[split]
    raise Problem(f"split is {shown(split)}; use 'train' or 'held_out', or rename that column")


def _conversation(columns: _Columns, names: Sequence[str], blank: bool) -> _Turns | None:
    """Return the messages of a record with a column of them, one of `names`, or None."""
    # The other names are also those of plain texts.
    others = [name for name in names[2:] if is_conversation(columns.peek(name))]
    name = columns.first([*names[:2], *others], blank)
    if name is None:
        return None
    value = columns.read(name)
    return _Turns(read_messages(name, value), unused_members(name, value))


def _answered(columns: _Columns, answers: Sequence[str], blank: bool) -> _Turns | None:
    """Return the messages of a record with a question and its answer, or None."""
    question, answer = columns.first(QUESTIONS, blank=True), columns.first(answers, blank)
    if question is None or answer is None:
        return None
    question_side = _side(columns, question, "user", 1)
    answer_side = _side(columns, answer, "assistant", len(question_side.messages) + 1)
    # Of a prompt that is a conversation, the completion alone is learned, as TRL does.
    before = [replace(m, learned=m.role != "assistant") for m in question_side.messages]
    after = [*answer_side.messages]
    if isinstance(columns.peek(question), str):
        more = columns.text(columns.first(_MORE.get(question, ()))).strip()
        parts = [part for part in (before[0].content, more) if part.strip()]
        before = [Message("user", "\n\n".join(parts))] if more else before
    if name := columns.first(_THOUGHT):
        after[0] = _with_thought(after[0], columns.text(name), name)
    start = 1 if before[0].role == "system" else 0
    history = _history(columns.read(_HISTORY))
    messages = (*before[:start], *history, *before[start:], *after)
    return _Turns(messages, (*question_side.unused, *answer_side.unused))


def _side(columns: _Columns, name: str, role: str, first: int) -> _Turns:
    """Return the question or the answer of a pair: one text, or a list of messages."""
    value = columns.read(name)
    if isinstance(value, list):
        return _Turns(read_messages(name, value, first), unused_members(name, value))
    return _Turns((Message(role, checked_text(value, name)),))


def _with_thought(answer: Message, thought: str, column: str) -> Message:
    if answer.role != "assistant" or answer.thought not in ("", thought):
        raise Problem(
            f"{column} cannot be the reasoning before the answer, whose messages have roles and "
            "reasoning of their own; remove that column"
        )
    return replace(answer, thought=thought)


def _history(value: Any) -> tuple[Message, ...]:
    """Return earlier turns, a list of [question, answer]."""
    turns = () if is_blank(value) else parsed(value, _HISTORY)
    messages: list[Message] = []
    for number, turn in enumerate(turns if isinstance(turns, (list, tuple)) else [turns], 1):
        if not isinstance(turn, (list, tuple)) or len(turn) != 2:
            raise Problem(f"turn {number} of {_HISTORY} must be a list [question, answer]")
        question, answer = (checked_text(text, f"turn {number} of {_HISTORY}") for text in turn)
        messages += [Message("user", question), Message("assistant", answer)]
    return tuple(messages)


def _framed(columns: _Columns, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return the messages with the record's system message in front, if they have none.

    Raises `Problem` if they have another, if no message is an answer, or if the record marks its
    answer as a bad one.
    """
    if not any(message.role == "assistant" for message in messages):
        raise Problem(
            "no message has the role assistant, so there is no answer to train on; add one, or "
            "remove the record"
        )
    for name in LABELS:
        label = str(columns.peek(name)).strip().lower()  # a number is the class of something else
        if label == "true":
            columns.read(name)
        if label == "false":
            raise Problem(
                f"{name} is false: a bad answer, which would be learned as a good one; learn to "
                "avoid it with objective=kto, remove these records, or rename that column if it "
                "means something else"
            )
    name = columns.first(_SYSTEM)
    system = columns.text(name)
    own = [message.content for message in messages if message.role == "system"]
    if not name or system.strip() in map(str.strip, own):
        return messages
    if own:
        raise Problem(
            f"{name} and the system message among the messages differ; remove one of them"
        )
    return (Message("system", system), *messages)


def _tools(columns: _Columns, messages: tuple[Message, ...]) -> tuple[Mapping[str, Any], ...]:
    """Return the functions that may be called."""
    name = columns.first(_TOOLS)
    if name is None:
        return ()
    value = columns.peek(name)
    is_other_text = isinstance(value, str) and value.strip()[0] not in "[{"
    # As in the data of Hermes: the system message has them as text already.
    written_out = any(m.role == "system" and "<tools>" in m.content for m in messages)
    return () if is_other_text or written_out else read_tools(columns.read(name), name)
