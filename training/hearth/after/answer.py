"""A conversation with one model, and its answers as a stream of text."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from transformers import StoppingCriteria, TextStreamer

from hearth.after.sides import Side
from hearth.base.errors import ModelError
from hearth.data.encode import encode_prompt
from hearth.data.findings import Problem
from hearth.data.messages import Message
from hearth.data.template import speaks_plainly
from hearth.model.backend import GREEDY

_NEXT_QUESTION = "\nUser:"
"""Text of a base model that begins the next question, after the plain template."""

Show = Callable[[str], None]
"""Shows a piece of an answer."""


@dataclass(frozen=True)
class Sampling:
    """The choice of tokens: greedy at temperature 0, else random numbers that begin with `seed`."""

    temperature: float = 0.0
    seed: int = 1
    max_tokens: int = 512

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of Transformers' `generate`."""
        chosen = {"do_sample": True, "temperature": self.temperature}
        return {"max_new_tokens": self.max_tokens, **(chosen if self.temperature else GREEDY)}


@dataclass(frozen=True)
class ChatAnswer:
    """An answer: its text and number of tokens, the seconds that they took, and why it ended."""

    text: str
    tokens: int
    seconds: float
    end: Literal["stop", "length", "interrupted"]


class _Stream(TextStreamer, StoppingCriteria):
    """Shows an answer as it comes; ends it before the text `until`, or once it is interrupted."""

    def __init__(self, side: Side, show: Show, until: str, interrupted: Callable[[], bool]) -> None:
        super().__init__(side.tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._ends = set(side.network.generation_config.eos_token_id)
        self._show, self._until, self._interrupted = show, until, interrupted
        self.text, self._held, self.found = "", "", False

    def put(self, value: torch.Tensor) -> None:
        """Take the prompt, or a token: those that end an answer are no text, special or not."""
        if self.next_tokens_are_prompt or self._ends.isdisjoint(value.tolist()):
            super().put(value)

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        """Show new text, except an end that may be the beginning of `until`."""
        text = self._held + text
        if self._until and self._until in text:
            self.found, text = True, text[: text.index(self._until)]
        elif self.found:
            text = ""
        kept = 0
        if not (stream_end or self.found):
            lengths = range(len(self._until) - 1, 0, -1)
            kept = next((n for n in lengths if text.endswith(self._until[:n])), 0)
        shown, self._held = text[: len(text) - kept], text[len(text) - kept :]
        self.text += shown
        self._show(shown)

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Return whether the answer is to end."""
        ends = self.found or self._interrupted()
        return torch.full((len(input_ids),), ends, dtype=torch.bool, device=input_ids.device)


def answer(
    side: Side,
    prompt: list[int],
    sampling: Sampling,
    show: Show,
    until: str = "",
    interrupted: Callable[[], bool] = lambda: False,
) -> ChatAnswer:
    """Return the answer of `side` to the tokens of a prompt, and `show` it meanwhile."""
    network = side.network
    stream = _Stream(side, show, until, interrupted)
    ids = torch.tensor([prompt], device=network.device)
    torch.manual_seed(sampling.seed)
    started = time.monotonic()
    output = network.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        use_cache=True,
        streamer=stream,
        stopping_criteria=[stream],
        **sampling.arguments(),
    )
    seconds = time.monotonic() - started
    new = output[0, len(prompt) :].tolist()
    by_itself = bool(new) and new[-1] in network.generation_config.eos_token_id
    end = "stop" if by_itself or stream.found else "interrupted" if interrupted() else "length"
    return ChatAnswer(stream.text, len(new) - by_itself, seconds, end)


class Conversation:
    """Questions to `side` and its answers.

    With `complete` there is no template and no history: each prompt is a text to go on with.
    """

    def __init__(self, side: Side, system: str = "", complete: bool = False) -> None:
        self.side, self._complete = side, complete
        self._first = [Message("system", system)] if system else []
        self.messages: list[Message] = []

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.messages = []

    def ask(
        self,
        prompt: str,
        sampling: Sampling,
        show: Show,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> ChatAnswer:
        """Return the answer to `prompt` and remember both, also if the answer was interrupted.

        Raises `ModelError` if the conversation is longer than the model can read.
        """
        ids, until = self._tokens(prompt)
        most = self.side.positions
        if most and len(ids) >= most:
            raise ModelError(
                f"{self.side.name}: the conversation has {len(ids)} tokens and this model reads "
                f"{most}; /reset begins a new one"
            )
        if most:
            sampling = replace(sampling, max_tokens=min(sampling.max_tokens, most - len(ids)))
        found = answer(self.side, ids, sampling, show, until, interrupted)
        if found.text.strip() and not self._complete:
            self.messages += [Message("user", prompt), Message("assistant", found.text.strip())]
        return found

    def _tokens(self, prompt: str) -> tuple[list[int], str]:
        """Return the tokens of the prompt, and the text that would be the next question."""
        tokenizer = self.side.tokenizer
        if self._complete:
            ids = tokenizer(prompt).input_ids
            return (ids[:-1] if ids[-1:] == [tokenizer.eos_token_id] else ids), ""
        until = _NEXT_QUESTION if speaks_plainly(tokenizer) else ""
        try:
            messages = [*self._first, *self.messages, Message("user", prompt)]
            return encode_prompt(tokenizer, messages), until
        except Problem as problem:
            raise ModelError(f"{self.side.name}: {problem}") from None
