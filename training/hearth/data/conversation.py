"""Reads a list of messages in the common forms of data sets, and the functions that they call.

| part of a message | names |
|---|---|
| role | `role`, or `from` of ShareGPT |
| content: text, or a list of text parts | `content`, or `value` of ShareGPT |
| the reasoning before an answer | `reasoning_content`, `reasoning`, `thinking`, `thought` |
| functions that an answer calls | `tool_calls`, `function_call` |
| whether an answer is learned: 1 and 0, or true and false | `weight`, `train`, `loss`, … |
| of a tool's message | `name`, `tool_call_id` |

A member that is null counts as absent: rows of parquet have the members of all messages.

A function is described as OpenAI does it, `{"type": "function", "function": {name, description,
parameters}}`, or by the inner object alone. A call is `{name, arguments}`, alone or inside the same
wrapper; its arguments are an object, or JSON text of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from hearth.data.findings import (
    Problem,
    as_switch,
    checked_json,
    checked_text,
    is_blank,
    kind_of,
    parsed,
    printable,
    shown,
)
from hearth.data.messages import Message

_MARKED_CALL = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
_MARKED_RESULT = re.compile(r"\s*<tool_response>\s*(.*?)\s*</tool_response>\s*", re.DOTALL)


def read_tools(value: Any, what: str) -> tuple[Mapping[str, Any], ...]:
    """Return the functions described by a column, each inside OpenAI's wrapper.

    `value` is a list of descriptions, one description, or JSON text of either. Raises `Problem`.
    """
    if is_blank(value):
        return ()
    value = parsed(value, what)
    described = [value] if isinstance(value, dict) else value
    if is_blank(described):
        return ()
    if not isinstance(described, list):
        raise Problem(f"{what} is {kind_of(value)}; write a list of {{name, parameters}}")
    return tuple(_tool(tool, f"function {n} of {what}") for n, tool in enumerate(described, 1))


def _tool(value: Any, what: str) -> dict[str, Any]:
    tool = parsed(value, what)
    wrapper = tool if isinstance(tool, dict) and "function" in tool else {}
    function = wrapper.get("function", tool)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise Problem(
            f"{what} has no name; write {{name, description, parameters}}, or "
            '{"type": "function", "function": {…}}'
        )
    if "parameters" in function:
        parameters = parsed(function["parameters"], f"the parameters of {what}")
        if not isinstance(parameters, dict):
            raise Problem(f"the parameters of {what} are no object; write a JSON schema")
        function = function | {"parameters": parameters}
    return checked_json({"type": "function", **wrapper, "function": function}, what)


def read_calls(value: Any, what: str) -> tuple[Mapping[str, Any], ...]:
    """Return the calls in a message's `tool_calls` or `function_call`.

    `value` is a list of calls, one call, or JSON text of either. Raises `Problem`.
    """
    if is_blank(value):
        return ()
    value = parsed(value, what)
    calls = [value] if isinstance(value, dict) else value
    if not isinstance(calls, list):
        raise Problem(f"{what} is {kind_of(value)}; write a list of {{name, arguments}}")
    return tuple(_call(call, f"call {n} of {what}") for n, call in enumerate(calls, 1))


def _call(value: Any, what: str) -> dict[str, Any]:
    call = parsed(value, what)
    if isinstance(call, dict) and isinstance(call.get("function"), dict):
        call = call["function"]
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        raise Problem(
            f'{what} has no name; write {{name, arguments}}, or {{"function": {{name, arguments}}}}'
        )
    arguments = call.get("arguments", call.get("parameters"))
    arguments = {} if is_blank(arguments) else parsed(arguments, f"the arguments of {what}")
    if not isinstance(arguments, dict):
        raise Problem(
            f"the arguments of {what} are {kind_of(arguments)}; write an object of values"
        )
    name = checked_text(call["name"], f"the name of {what}")
    return {"name": name, "arguments": checked_json(arguments, f"the arguments of {what}")}


def marked_calls(content: str) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    """Split an answer in the form of Hermes: its text, then calls in `<tool_call>` marks.

    The answer stays as it is, without calls, if its end is anything else.
    """
    text, mark, rest = content.partition("<tool_call>")
    if not mark or _MARKED_CALL.sub("", mark + rest).strip():
        return content, ()
    try:
        calls = [json.loads(call) for call in _MARKED_CALL.findall(mark + rest)]
        return text.rstrip(), read_calls(calls, "the answer")
    except (Problem, ValueError, RecursionError):
        return content, ()


def unmarked_result(content: str) -> str:
    """Return a tool's result without the `<tool_response>` marks of Hermes."""
    found = _MARKED_RESULT.fullmatch(content)
    return found[1] if found and "<tool_response>" not in found[1] else content


_CALLS = "calls"
_NAMES = {
    "system": ("system", "developer"),
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "chatgpt", "bot", "chatbot", "model", "ai"),
    "tool": (
        *("tool", "observation", "function", "tool_response", "function_response"),
        *("tool_result", "ipython"),
    ),
    _CALLS: ("function_call", "tool_call"),
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names}
"""Role by each of its names; `calls` is an answer whose content is its calls as JSON."""

_ROLE_KEYS = ("role", "from")
_CONTENT_KEYS = ("content", "value")
_THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking", "thought")
_CALL_KEYS = ("tool_calls", "function_call")
_LEARNED_KEYS = ("weight", "train", "training", "loss", "loss_weight")
_DETAIL_KEYS = ("name", "tool_call_id")
_READ_KEYS = frozenset((*_ROLE_KEYS, *_CONTENT_KEYS, *_CALL_KEYS, *_LEARNED_KEYS))
_KEYS_BY_ROLE = {"assistant": _THOUGHT_KEYS, _CALLS: _THOUGHT_KEYS, "tool": _DETAIL_KEYS}
_PARTS_OF_ANSWERS = ("train_detail", "training_detail")
_TEXT_PARTS = (None, "text", "input_text", "output_text")
_WANTED = "must be an object with role and content, or from and value"


def is_conversation(value: Any) -> bool:
    """Return whether `value` is a list of objects, or JSON text of one."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parsed(value, "")
        except Problem:
            return False
    return isinstance(value, list) and bool(value) and all(isinstance(m, dict) for m in value)


def read_messages(column: str, value: Any, first: int = 1) -> tuple[Message, ...]:
    """Return the messages in a column, which may hold them as JSON text.

    Messages are counted from `first` in what `Problem` says.
    """
    if isinstance(value, str):
        try:
            value = parsed(value, column)
        except Problem:
            raise Problem(
                f"{column} is text, but not a JSON list of messages; write a list of "
                "{role, content}"
            ) from None
    if not isinstance(value, list) or not value:
        raise Problem(f"{column} must be a list of {{role, content}} with at least one answer")
    return tuple(_message(number, each) for number, each in enumerate(value, start=first))


def unused_members(column: str, value: Any) -> tuple[str, ...]:
    """Return the members of messages that `read_messages` does not read, such as `messages.id`."""
    found: dict[str, None] = {}
    for message in parsed(value, column):
        if others := [name for name in message if name not in _READ_KEYS]:
            role = _role_of(_first(message, _ROLE_KEYS))
            read = _KEYS_BY_ROLE.get(role or "", ())
            found |= dict.fromkeys(
                name for name in others if name not in read and not is_blank(message[name])
            )
    return tuple(printable(f"{column}.{name}") for name in found)


def _message(number: int, value: Any) -> Message:
    what = f"message {number}"
    message = value if isinstance(value, dict) else {}
    given = _first(message, _ROLE_KEYS)
    if given is None:
        raise Problem(f"{what} {_WANTED}")
    role = _role_of(given)
    if role is None:
        raise Problem(
            f"{what} has the role {shown(given)}; use system, user, assistant or tool, or one of "
            f"{', '.join(name for name, role in _ROLES.items() if name != role)}"
        )
    content = _content(_first(message, _CONTENT_KEYS), what)
    if len(message) == 2 and content is not None and role != _CALLS:  # as nearly all messages
        return _unmarked(Message(role, content))
    _refuse_two(message, _ROLE_KEYS, what, _role_of)
    _refuse_two(message, _CONTENT_KEYS, what)
    learned = _learned(message, "assistant" if role == _CALLS else role, what)
    calls = _calls(message, role, what)
    if role == _CALLS:
        calls = read_calls(content or "", f"the content of {what}") + calls
        role, content = "assistant", ""
        if not calls:
            raise Problem(f"{what} has the role {given}, but no call; write {{name, arguments}}")
    thought = _thought(message, what) if role == "assistant" else ""
    if content is None and not (calls or thought or role == "tool"):
        if not any(name in message for name in _CONTENT_KEYS):
            raise Problem(f"{what} {_WANTED}")
        raise Problem(f"the content of {what} is null, not text; write text, or remove the message")
    details = _details(message, what) if role == "tool" else {}
    return _unmarked(Message(role, content or "", thought, calls, learned, details))


def _unmarked(message: Message) -> Message:
    """Remove Hermes' marks from a message: parse its calls, unwrap its result."""
    if message.role == "tool" and "<tool_response>" in message.content:
        return replace(message, content=unmarked_result(message.content))
    if message.role == "assistant" and not message.calls and "<tool_call>" in message.content:
        text, calls = marked_calls(message.content)
        return replace(message, content=text, calls=calls)
    return message


def _role_of(given: Any) -> str | None:
    """Return the role that has this name, or None."""
    return _ROLES.get(given.strip().lower()) if isinstance(given, str) else None


def _first(message: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first of these members that is there, or None."""
    for name in names:
        if (value := message.get(name)) is not None:
            return value
    return None


def _refuse_two(
    message: Mapping[str, Any], names: Iterable[str], what: str, same: Any = lambda value: value
) -> None:
    """Raise `Problem` if two members with one meaning differ."""
    there = [name for name in names if not is_blank(message.get(name))]
    first = same(message[there[0]]) if there else None
    if other := next((name for name in there if same(message[name]) != first), None):
        raise Problem(f"{what} has {there[0]} and {other}, which differ; remove one of them")


def _content(value: Any, what: str) -> str | None:
    """Return the text of a message's content, or None if it is absent."""
    if isinstance(value, list):
        return "".join(
            _part(part, f"part {number} of the content of {what}")
            for number, part in enumerate(value, 1)
        )
    return None if value is None else checked_text(value, f"the content of {what}")


def _part(part: Any, what: str) -> str:
    """Return the text of one part of a content that is a list."""
    if not isinstance(part, dict):
        raise Problem(f'{what}, a list, is {kind_of(part)}; write {{"type": "text", "text": …}}')
    kind = part.get("type")
    others = [k for k, v in part.items() if k not in ("type", "text") and not is_blank(v)]
    if kind not in _TEXT_PARTS or (kind is None and others):
        found = kind if isinstance(kind, str) else ", ".join(map(str, others)) or kind_of(kind)
        raise Problem(f"{what} is {found}; Hearth trains on text only, so remove that part")
    return checked_text(part.get("text"), what)


def _thought(message: Mapping[str, Any], what: str) -> str:
    _refuse_two(message, _THOUGHT_KEYS, what)
    given = [name for name in _THOUGHT_KEYS if not is_blank(message.get(name))]
    return checked_text(message[given[0]], f"{given[0]} of {what}") if given else ""


def _calls(message: Mapping[str, Any], role: str, what: str) -> tuple[Mapping[str, Any], ...]:
    given = [name for name in _CALL_KEYS if not is_blank(message.get(name))]
    if given and role not in ("assistant", _CALLS):
        raise Problem(f"{what} has {given[0]} and the role {role}; only an assistant calls tools")
    read = [read_calls(message[name], f"{name} of {what}") for name in given]
    return tuple(call for calls in read for call in calls)


def _learned(message: Mapping[str, Any], role: str, what: str) -> bool:
    """Return whether a message carries loss, by the member that says so."""
    if given := next((n for n in _PARTS_OF_ANSWERS if not is_blank(message.get(n))), None):
        raise Problem(
            f"{what} has {given}; Hearth learns an answer whole or not at all, so split the "
            "message, or give it a weight of 0 or 1"
        )
    given = {name: message[name] for name in _LEARNED_KEYS if not is_blank(message.get(name))}
    switches = {name: as_switch(value) for name, value in given.items()}
    for name, switch in switches.items():
        if switch is None:
            raise Problem(
                f"{name} of {what} is {shown(given[name])}; an answer is learned or not, so use "
                "1 or 0"
            )
    if len(set(switches.values())) > 1:
        raise Problem(f"{what} has {' and '.join(switches)}, which differ; remove one of them")
    learned = next(iter(switches.values()), True)
    if switches and learned and role != "assistant":
        name = next(iter(given))
        raise Problem(
            f"{name} of {what} is {shown(given[name])}, and its role is {role}; only the "
            "assistant's messages are learned, so remove it"
        )
    return learned or role != "assistant"


def _details(message: Mapping[str, Any], what: str) -> dict[str, str]:
    """Return the members of a tool's message that templates read."""
    return {
        name: checked_text(message[name], f"{name} of {what}")
        for name in _DETAIL_KEYS
        if not is_blank(message.get(name))
    }
