"""A model's chat template: its rendering, its abilities, and the tokens that end an answer.

A model without a chat template (a base model) gets this one:

    User: What is NCCL?
    Assistant: A library.<eos>
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NoReturn

from hearth.base.errors import ModelError
from hearth.data.answers import Chat, Ends, find_answers, one_of, shows, text_behind
from hearth.data.findings import Endless, Problem
from hearth.data.messages import Example, Message

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ message['content'] }}\n\n"
    "{% elif message['role'] == 'user' %}User: {{ message['content'] }}\n"
    "{% elif message['role'] == 'assistant' %}Assistant: {{ message['content'] }}{{ eos_token }}\n"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_TODAY = datetime(2024, 7, 26)
CONSTANTS = {"date_string": "26 Jul 2024", "strftime_now": _TODAY.strftime}
"""Values for templates that write today's date: with it two nodes, or two days, would see different
tokens. Llama 3 takes the first, gpt-oss the second."""

SECONDS = 10.0
"""Seconds of computing that a rendering may take; a long conversation takes milliseconds."""

_MARKED = re.compile(r"\{%-?\s*generation\s*-?%\}")
_CALL = Message("assistant", calls=({"name": "add", "arguments": {"one": "two"}},))
_ASK, _ANSWER = Message("user", "1"), Message("assistant", "2")
Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class _MessageForm:
    """The form of the messages that a template reads; the defaults suit most.

    Attributes:
        parts: contents are lists of parts, as for models that see.
        thoughts: a thought is a field of its own; else it stands in tags before the content.
        no_content: the content of an answer that only calls.
        json_text: the arguments of a call are JSON text.
    """

    parts: bool = False
    thoughts: bool = False
    no_content: str | None = ""
    json_text: bool = False

    def written(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return `messages` as the objects that a template reads."""
        ids, open_calls = itertools.count(1), list[str]()
        return [self._message(message, ids, open_calls) for message in messages]

    def _message(
        self, message: Message, ids: Iterator[int], open_calls: list[str]
    ) -> dict[str, Any]:
        content: Any = message.content
        made: dict[str, Any] = {"role": message.role}
        if message.thought and self.thoughts:
            made |= dict.fromkeys(("reasoning_content", "reasoning", "thinking"), message.thought)
        elif message.thought:
            content = f"<think>\n{message.thought}\n</think>\n\n{content}"
        if message.calls:
            names = [f"{next(ids):09d}" for _ in message.calls]  # Mistral wants nine characters
            open_calls[:] = names
            made["tool_calls"] = [
                {"id": name, "type": "function", "function": self._call(call)}
                for name, call in zip(names, message.calls, strict=True)
            ]
            content = content or self.no_content
        if message.role == "tool":
            call = open_calls.pop(0) if open_calls else ""
            made |= {"tool_call_id": call, **message.details}
        in_parts = self.parts and content is not None
        made["content"] = [{"type": "text", "text": content}] if in_parts else content
        return made

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        arguments = call["arguments"]
        if self.json_text:
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {"name": call["name"], "arguments": arguments}


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


def speaks_plainly(tokenizer: Any) -> bool:
    """Return whether `tokenizer` has the plain template, from `ensure_chat_template`."""
    return str(tokenizer.chat_template).endswith(PLAIN_TEMPLATE)


def tokenizer_fingerprint(tokenizer: Any, stops: Sequence[int] = ()) -> str:
    """Return a checksum of all that affects an example's tokens: tokenizer, template and stops."""
    backend = json.loads(tokenizer.backend_tokenizer.to_str())
    # These two hold state of the last call, not of the tokenizer.
    backend["truncation"] = backend["padding"] = None
    parts = [
        backend,
        tokenizer.chat_template,
        tokenizer.eos_token_id,
        tokenizer.bos_token_id,
        sorted(special_tokens(tokenizer)),
        sorted(stops),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def special_tokens(tokenizer: Any) -> set[str]:
    """Return all special tokens of `tokenizer`, as they are written."""
    added = tokenizer.added_tokens_decoder.values()
    return {token.content for token in added if token.special} | set(tokenizer.all_special_tokens)


def end_of_turn(tokenizer: Any) -> int | None:
    """Return the token that ends an answer in the chat template; None if the template has none."""
    end = ChatTemplate(tokenizer).end_of_turn
    return None if end is None else tokenizer.convert_tokens_to_ids(end)


class ChatTemplate:
    """The chat template of `tokenizer`, whose generation stops at the token ids `stops`.

    Those are the eos_token_id of a model's generation_config.json; the tokenizer's own end of
    sequence counts too.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        known = tokenizer.added_tokens_decoder
        own = {tokenizer.eos_token, *(known[stop].content for stop in stops if stop in known)}
        self._stops = own - {None}

    def render(self, messages: Sequence[Message], prompt: bool = False, tools: Tools = ()) -> str:
        """Return a conversation as text, with or without the prompt for the next answer.

        Raises `Problem` if the template refuses it.
        """
        return self._render(messages, prompt, tools, self._form_for(messages))

    def chat(self, example: Example) -> Chat:
        """Return the rendered conversation of `example` with the answers that carry loss.

        Raises `Problem` if the template cannot show it, or does not show where an answer ends.
        """
        if example.tools and not self._shows_tools(example):
            raise Problem(
                "the model's chat template does not show tools; choose a model that calls "
                "functions, or leave out the column tools"
            )
        render = functools.partial(self.render, tools=example.tools)
        return find_answers(example.messages, render, self.ends, self._generated(example))

    @functools.cached_property
    def stops(self) -> frozenset[str]:
        """The tokens that stop generation; if the template writes none of them, also its own."""
        if any(stop in self._closing for stop in self._stops):
            return frozenset(self._stops)
        # The last of several: some templates end the text first, and then the turn.
        own = re.findall(one_of(sorted(special_tokens(self.tokenizer))), self._closing)[-1:]
        return frozenset({*self._stops, *own})

    @functools.cached_property
    def ends(self) -> Ends:
        """The tokens that can end an answer."""
        special = sorted(special_tokens(self.tokenizer))
        return Ends(sorted(self.stops), special, self.tokenizer.eos_token)

    @functools.cached_property
    def end_of_turn(self) -> str | None:
        """The token that ends the last answer of a conversation; None if the template has none."""
        found = self.ends.find(self._closing, 0, len(self._closing), calls=False)
        return found[1] if found else None

    @functools.cached_property
    def _closing(self) -> str:
        """The text behind the last answer of a conversation; "" if the template hides that."""
        try:
            return text_behind([_ASK, _ANSWER], self.render)
        except Problem:
            return ""

    @functools.cached_property
    def control(self) -> frozenset[str]:
        """The special tokens that make up the turns of a conversation, and those that end one.

        Where they occur in the words of a message, they are text.
        """
        tokenizer = self.tokenizer
        known = {*self.stops, tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token}
        try:
            around = self.render([_ASK, _ANSWER, _ASK])
        except Problem:
            around = ""
        found = re.findall(one_of(sorted(special_tokens(tokenizer))), around)
        return frozenset({*known, *found} - {None, "<think>", "</think>"})

    def _form_for(self, messages: Sequence[Message]) -> _MessageForm:
        """Return the form for `messages`, trying only the features that they use."""
        form = self._form
        if any(message.thought for message in messages):
            form = replace(form, thoughts=self._has_thoughts)
        if any(message.calls for message in messages):
            form = replace(form, **self._form_of_calls)
        return form

    @functools.cached_property
    def _form(self) -> _MessageForm:
        """The form of contents: text, or a list of parts where only that is shown."""
        parts = _MessageForm(parts=True)
        return (
            parts
            if self._shows(parts, _ASK) and not self._shows(_MessageForm(), _ASK)
            else _MessageForm()
        )

    @functools.cached_property
    def _has_thoughts(self) -> bool:
        """Whether the template shows a thought that is a field of its own."""
        answer = Message("assistant", "2", thought="3")
        return self._shows(replace(self._form, thoughts=True), _ASK, answer)

    @functools.cached_property
    def _form_of_calls(self) -> dict[str, Any]:
        """The form of calls: DeepSeek's templates want JSON text and no content."""
        for no_content, json_text in itertools.product(("", None), (False, True)):
            tried = {"no_content": no_content, "json_text": json_text}
            if self._shows(replace(self._form, **tried), _ASK, _CALL):
                return tried
        return {}

    def _shows(self, form: _MessageForm, *messages: Message) -> bool:
        """Return whether the template shows the last of `messages` whole in this form."""
        return shows(messages, lambda each, prompt: self._render(each, prompt, (), form))

    def _shows_tools(self, example: Example) -> bool:
        """Return whether the rendering of `example` depends on its tools."""
        with_tools = self.render(example.messages, tools=example.tools)
        return with_tools != self.render(example.messages)

    def _generated(self, example: Example) -> list[tuple[int, int]]:
        """Return the stretches that the template marks as generated, none if it marks nothing."""
        template = self.tokenizer.get_chat_template(tools=list(example.tools) or None)
        if not _MARKED.search(template):
            return []
        # Imported late: it loads half of transformers.
        from transformers.utils.chat_template_utils import render_jinja_template

        with _refusals():
            _, stretches = render_jinja_template(
                [self._form_for(example.messages).written(example.messages)],
                tools=[dict(tool) for tool in example.tools] or None,
                chat_template=template,
                return_assistant_tokens_mask=True,
                **self.tokenizer.special_tokens_map,
                **CONSTANTS,
            )
        return [(start, stop) for start, stop in stretches[0]]

    def _render(
        self, messages: Sequence[Message], prompt: bool, tools: Tools, form: _MessageForm
    ) -> str:
        """Return `messages` in this `form` as text. Raises `Problem` if the template refuses."""
        with _refusals():
            return self.tokenizer.apply_chat_template(
                form.written(messages),
                tools=[dict(tool) for tool in tools] or None,
                tokenize=False,
                add_generation_prompt=prompt,
                **CONSTANTS,
            )


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn any error of a template into a `Problem`, endless rendering included."""
    try:
        with computing_at_most(SECONDS, Endless()):
            yield
    except Endless:
        raise
    except Exception as error:  # a template is a program of others, and can raise anything
        raise Problem(refusal(error)) from None


def refusal(reason: object) -> str:
    """Return the text of a problem with a conversation that a template refuses."""
    return f"the model's chat template refuses this conversation ({reason})"


@contextmanager
def computing_at_most(seconds: float, error: Exception) -> Iterator[None]:
    """Raise `error` within the block once it has computed for `seconds`.

    Time that the process waits does not count. Only the main thread can be interrupted so, and only
    between two steps of Python; in another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> NoReturn:
        raise error

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
