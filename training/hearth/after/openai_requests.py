"""Requests of OpenAI's API as they arrive: the fields that are read, their types and bounds. Pure.

An invalid request is refused with the field at fault. Nothing in a request replaces the
model's chat template, which is a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MOST_BYTES = 32 << 20
"""Bytes of a request; a conversation that fills the longest context has a tenth of it."""

GREEDY_BELOW = 0.01
"""Temperature below which the most likely token is certain, and numbers would overflow."""

_RESERVED = frozenset(
    {
        *("conversation", "messages", "tools", "documents", "chat_template", "tokenize"),
        *("add_generation_prompt", "continue_final_message", "padding", "truncation"),
        *("max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
        *("tokenizer_kwargs", "template", "text", "date_string", "strftime_now"),
        *("load_audio_from_video", "num_frames"),
    }
)
"""Names that `chat_template_kwargs` of a request can give no value: none is the template's."""

_Text = Annotated[str, Field(max_length=MOST_BYTES)]
_Stop = Annotated[str, Field(min_length=1, max_length=200)]
_Tokens = Annotated[int, Field(ge=1, le=10**6)]


class RefusedRequest(Exception):
    """A request cannot be fulfilled: the reason, the field at fault, and OpenAI's code for it."""

    def __init__(self, reason: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(reason)
        self.param, self.code = param, code


class _TextPart(BaseModel):
    model_config = ConfigDict(strict=True)
    type: Literal["text", "input_text", "output_text"]
    text: _Text


class _Function(BaseModel):
    model_config = ConfigDict(strict=True)
    name: str
    arguments: str | dict[str, Any]


class _ToolCall(BaseModel):
    model_config = ConfigDict(strict=True)
    function: _Function


class _Message(BaseModel):
    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: _Text | list[_TextPart] | None = None
    tool_calls: list[_ToolCall] = []
    tool_call_id: str | None = None


class _Request(BaseModel):
    """The fields that requests of all kinds have."""

    model_config = ConfigDict(strict=True)
    model: str
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    stream: bool | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=16)] | None = None
    frequency_penalty: Annotated[float, Field(gt=-1, le=2)] | None = None
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], float] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    generation_config: None = None


class _ChatRequest(_Request):
    messages: Annotated[list[_Message], Field(min_length=1)]
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None


class _CompletionRequest(_Request):
    prompt: _Text
    suffix: _Text | None = None
    max_tokens: _Tokens | None = None


class _Item(BaseModel):
    """A message of the Responses API, or a call of a function, or its result."""

    model_config = ConfigDict(strict=True)
    type: str | None = None
    role: Literal["system", "developer", "user", "assistant", "tool"] | None = None
    content: _Text | list[_TextPart] | None = None
    text: _Text | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | None = None


class _ResponsesRequest(_Request):
    input: _Text | Annotated[list[_Item], Field(min_length=1)]
    instructions: _Text | None = None
    max_output_tokens: _Tokens | None = None


KINDS: Mapping[str, type[_Request]] = {
    "chat": _ChatRequest,
    "completion": _CompletionRequest,
    "responses": _ResponsesRequest,
}
LIMITS = {"chat": "max_tokens", "completion": "max_tokens", "responses": "max_output_tokens"}
"""The field with the most tokens of an answer, by kind of request."""


def checked(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request with fields that can be fulfilled, as the server reads them.

    Raises `RefusedRequest` with the first field that cannot.
    """
    try:
        KINDS[kind].model_validate(body)
    except ValidationError as error:
        raise _refused(error) from None
    wanted = {name: value for name, value in body.items() if value is not None}
    if (most := wanted.pop("max_completion_tokens", None)) is not None:
        wanted.setdefault("max_tokens", most)
    given = wanted.pop("chat_template_kwargs", {})
    if kept := {name: value for name, value in given.items() if name not in _RESERVED}:
        wanted["chat_template_kwargs"] = kept
    if 0 < wanted.get("temperature", 0) < GREEDY_BELOW:
        wanted["temperature"] = 0
    return wanted


def error_of(
    reason: str,
    kind: str = "invalid_request_error",
    param: str | None = None,
    code: str | None = None,
) -> dict[str, Any]:
    """Return an error in the form of OpenAI's API, with the field at fault (`param`) if known."""
    return {"error": {"message": reason, "type": kind, "param": param, "code": code}}


def _refused(error: ValidationError) -> RefusedRequest:
    """Return the first problem with a request."""
    first = error.errors(include_url=False, include_input=False)[0]
    name, *within = first["loc"] or ("the request",)
    field = f"{name}{''.join(f'[{part}]' for part in within[:1] if isinstance(part, int))}"
    if first["type"] == "missing":
        missing = f"it lacks {within[-1]}" if within else "this field is missing"
        return RefusedRequest(f"{field}: {missing}", str(name), "missing_required_parameter")
    reason = str(first["msg"]).replace("Input should", "it should")
    return RefusedRequest(f"{field}: {reason}", str(name), "invalid_value")
