"""A model's answer as a stream of text, computed token by token on demand.

Transformers' `generate` computes in a thread that waits before every token until the reader wants
the next one. So several answers take turns: two sides stream at once, each with random numbers of
its own, and a side that is not read does not compute.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tokenizers.decoders import DecodeStream
from transformers.generation.streamers import BaseStreamer

from hearth.after.sides import Side
from hearth.model.backend import GREEDY

End = Literal["stop", "length", "interrupted"]


@dataclass(frozen=True)
class Sampling:
    """The choice of tokens: greedy at temperature 0, else random numbers that begin with `seed`."""

    temperature: float = 0.0
    seed: int = 1
    max_tokens: int = 512

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of Transformers' `generate`."""
        if self.temperature == 0:
            return GREEDY
        return {"do_sample": True, "temperature": self.temperature}


class _Stopped(Exception):
    """Ends `generate` from within its streamer."""


class _Turns(BaseStreamer):
    """Hands over one token of `generate` a turn; `generate` waits between turns."""

    def __init__(self) -> None:
        self._turn = threading.Semaphore(0)
        self._tokens: queue.SimpleQueue[int | BaseException | None] = queue.SimpleQueue()
        self._stopped = self._past_prompt = False

    def next(self) -> int | None:
        """Have the next token computed and return it, None after the last; raise its error."""
        self._turn.release()
        token = self._tokens.get()
        if isinstance(token, BaseException):
            raise token
        return token

    def stop(self) -> None:
        """Have `generate` end at its next token."""
        self._stopped = True
        self._turn.release()

    def run(self, network: Any, arguments: dict[str, Any]) -> None:
        """Generate in this thread, a token a turn."""
        try:
            self._wait()
            network.generate(**arguments, streamer=self)
            self._tokens.put(None)
        except _Stopped:
            pass
        except BaseException as error:  # the reader's to judge, out of memory for one
            self._tokens.put(error)

    def put(self, value: torch.Tensor) -> None:
        """Hand over a token; the first call brings those of the prompt."""
        if not self._past_prompt:
            self._past_prompt = True
            return
        for token in value.tolist():
            self._tokens.put(token)
            self._wait()

    def end(self) -> None:
        """Do nothing: `run` knows the end."""

    def _wait(self) -> None:
        self._turn.acquire()
        if self._stopped:
            raise _Stopped


class Answer:
    """The answer of `side` to the tokens of a prompt: iterate over it for pieces of its text.

    Attributes:
        text: the answer so far.
        tokens: the number of tokens so far, and `seconds` the time that they took.
        end: why it ended; None as long as it goes on.
    """

    def __init__(self, side: Side, prompt: list[int], sampling: Sampling, until: str = "") -> None:
        """Begin nothing yet; the answer ends also before the text `until`, if given."""
        self.name, self.text, self.tokens, self.seconds = side.name, "", 0, 0.0
        self.end: End | None = None
        self._most, self._until, self._held = sampling.max_tokens, until, ""
        self._tokenizer, self._device = side.tokenizer.backend_tokenizer, side.network.device
        self._decoder = DecodeStream([], skip_special_tokens=True)
        self._ends = set(side.network.generation_config.eos_token_id)
        self._random: torch.Tensor | None = None  # greedy answers draw none
        if sampling.temperature:
            self._random = torch.Generator(self._device).manual_seed(sampling.seed).get_state()
        self._turns = _Turns()
        ids = torch.tensor([prompt], device=self._device)
        arguments = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "max_new_tokens": self._most,
            "use_cache": True,
            **sampling.arguments(),
        }
        self._thread = threading.Thread(
            target=self._turns.run, args=(side.network, arguments), daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[str]:
        """Yield the pieces of text as they come, possibly empty ones."""
        while self.end is None:
            yield self.read()

    def read(self) -> str:
        """Have one token computed; return the text that is new, often a word, possibly none."""
        started = time.monotonic()
        with self._own_random():
            token = self._turns.next()
        self.seconds += time.monotonic() - started
        if token is None or token in self._ends:
            return self._finish(
                "stop" if token is not None or self.tokens < self._most else "length"
            )
        self.tokens += 1
        return self._show(self._decoder.step(self._tokenizer, token) or "")

    def close(self) -> None:
        """End the answer where it is."""
        if self.end is None:
            self._finish("interrupted")

    def _show(self, piece: str) -> str:
        """Add `piece` to the text, but for an end that may be the beginning of `until`."""
        self._held += piece
        before, found, _ = (
            self._held.partition(self._until) if self._until else (self._held, "", "")
        )
        if found:
            self._held = ""
            return self._add(before) + self._finish("stop")
        kept = next(
            (n for n in range(len(self._until) - 1, 0, -1) if before.endswith(self._until[:n])), 0
        )
        shown, self._held = before[: len(before) - kept], before[len(before) - kept :]
        return self._add(shown)

    def _add(self, piece: str) -> str:
        self.text += piece
        return piece

    def _finish(self, end: End) -> str:
        self.end = end
        self._turns.stop()
        self._thread.join()
        rest, self._held = self._held, ""
        return self._add(rest)

    @contextmanager
    def _own_random(self) -> Iterator[None]:
        """Compute with this answer's random numbers, whatever the others draw meanwhile."""
        if self._random is None:
            yield
            return
        gpu = self._device.type == "cuda"
        with torch.random.fork_rng([self._device] if gpu else []):
            if gpu:
                torch.cuda.set_rng_state(self._random, self._device)
            else:
                torch.set_rng_state(self._random)
            yield
            self._random = torch.cuda.get_rng_state(self._device) if gpu else torch.get_rng_state()
