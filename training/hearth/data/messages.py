"""An example to train on: a conversation of messages, or a plain text. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("system", "user", "assistant", "tool")


def hash_of_text(text: str) -> int:
    """Return a 64-bit hash of `text`, the same everywhere."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Message:
    """One message of a conversation.

    Attributes:
        role: one of `ROLES`.
        content: its text; may be empty if there are calls.
        thought: the reasoning before the content of an answer.
        calls: the functions that an answer calls: `{"name": str, "arguments": dict}` each.
        learned: whether this answer carries loss; only the assistant's do.
        details: further fields that templates read of a tool's message: `name`, `tool_call_id`.
    """

    role: str
    content: str = ""
    thought: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    learned: bool = True
    details: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_learned(self) -> bool:
        """Whether this is an answer that carries loss."""
        return self.role == "assistant" and self.learned

    @property
    def blank(self) -> bool:
        """Whether it holds neither text nor calls."""
        return not (self.content.strip() or self.thought.strip() or self.calls)

    @property
    def texts(self) -> list[str]:
        """All texts of it: content, thought, and calls as JSON."""
        calls = [json.dumps(dict(call), ensure_ascii=False) for call in self.calls]
        return [self.content, self.thought, *calls]

    def as_json(self) -> list[Any]:
        """Return role, content and, if there are any, the other parts, for a checksum."""
        rest = {
            "thought": self.thought,
            "calls": [dict(call) for call in self.calls],
            "learned": self.learned,
            "details": dict(self.details),
        }
        plain = {"thought": "", "calls": [], "learned": True, "details": {}}
        return [self.role, self.content, *([rest] if rest != plain else [])]


@dataclass(frozen=True)
class Example:
    """One example: a conversation or a plain text.

    Attributes:
        messages: the conversation, or () for a plain text.
        text: the plain text, or "" for a conversation.
        tools: JSON schemas of the functions that the conversation may call.
        held_out: whether the file marks it as held out, or None if it is unmarked.
        unused: names of the record's columns that were not read.
        liked: whether its answer is one to prefer or to avoid, or None where none is judged.
    """

    messages: tuple[Message, ...] = ()
    text: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    held_out: bool | None = None
    unused: tuple[str, ...] = ()
    liked: bool | None = None

    @property
    def empty(self) -> bool:
        """Whether the text is blank, or all answers that carry loss are."""
        answers = [message for message in self.messages if message.is_learned]
        return not self.text.strip() and all(answer.blank for answer in answers)

    @property
    def hash(self) -> int:
        """A 64-bit hash of the content alone."""
        content = [[message.as_json() for message in self.messages], self.text]
        if self.tools:
            content.append([dict(tool) for tool in self.tools])
        # Compact separators would change the side of examples that are held out by their hash.
        return hash_of_text(json.dumps(content, ensure_ascii=True))
