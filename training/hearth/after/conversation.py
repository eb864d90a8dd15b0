"""A conversation with one side: its own history, rendered by the run's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hearth.after.answer import Answer, Sampling
from hearth.after.sides import Side
from hearth.base.errors import ModelError
from hearth.data.encode import encode_prompt
from hearth.data.findings import Problem
from hearth.data.messages import Message
from hearth.data.template import speaks_plainly

_NEXT_QUESTION = "\nUser:"
"""Where a base model goes on to write the other one's part, after the plain template."""


class Conversation:
    """Questions to `side` and its answers.

    With `complete` there is no template and no history: each prompt is a text to go on with.
    """

    def __init__(self, side: Side, system: str = "", complete: bool = False) -> None:
        self.side, self._complete = side, complete
        self._first: list[Message] = [Message("system", system)] if system else []
        self.messages: list[Message] = []

    def reset(self) -> None:
        """Forget all questions and answers."""
        self.messages = []

    def ask(self, prompt: str, sampling: Sampling) -> Answer:
        """Return the answer to `prompt`; `keep` it once it is there.

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
        return Answer(self.side, ids, sampling, until)

    def keep(self, prompt: str, answer: Answer) -> None:
        """Remember a question and what was answered, also if somebody stopped the answer."""
        if answer.text.strip() and not self._complete:
            self.messages += [Message("user", prompt), Message("assistant", answer.text.strip())]

    def _tokens(self, prompt: str) -> tuple[list[int], str]:
        """Return the tokens of the prompt, and the text that would be the next question."""
        tokenizer = self.side.tokenizer
        if self._complete:
            ids = tokenizer(prompt).input_ids
            return (ids[:-1] if ids[-1:] == [tokenizer.eos_token_id] else ids), ""
        until = _NEXT_QUESTION if speaks_plainly(tokenizer) else ""
        try:
            return encode_prompt(tokenizer, self._rendered(prompt)), until
        except Problem as problem:
            raise ModelError(f"{self.side.name}: {problem}") from None

    def _rendered(self, prompt: str) -> Sequence[Message]:
        return [*self._first, *self.messages, Message("user", prompt)]
