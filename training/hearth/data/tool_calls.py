"""Reads the functions that a conversation may call, and the calls in its answers.

A function is described as OpenAI does it, `{"type": "function", "function": {name, description,
parameters}}`, or by the inner object alone. A call is `{name, arguments}`, alone or inside the same
wrapper; its arguments are an object, or JSON text of one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from hearth.data.findings import Problem
from hearth.data.values import checked_json, checked_text, is_blank, kind_of, parsed

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
