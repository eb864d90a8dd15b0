"""Render chat templates within bounds, and check them before they are used.

A template is a program of others: it can compute for ever, or fill the memory. So a process of its
own renders it, one request a line, and the kernel ends that process if a bound is passed. It
imports no torch, so that it starts soon.
"""

from __future__ import annotations

import json
import math
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import Environment, TemplateSyntaxError

from hearth.base.places import TOKENS, python_path
from hearth.data.findings import Endless, Problem
from hearth.data.template import CONSTANTS, SECONDS, computing_at_most, refusal

_CODE, _PROGRAM = Path(__file__).parents[2], "hearth.data.rendering"
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}

_PATIENCE = 120.0
"""Seconds to wait for an answer, on a computer with much else to do."""


class Renderer:
    """A process that renders chat templates. It is started when it is needed, and then kept."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def render(
        self,
        template: str,
        conversation: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Return a conversation as text, with the prompt for the next answer.

        `variables` are those that the template knows beside it.

        Raises `Problem` if the template refuses the conversation, `Endless` if it does not end.
        """
        request = {
            "template": template,
            "conversation": list(conversation),
            "variables": dict(variables),
            "tools": list(tools) if tools else None,
        }
        with self._one_at_a_time:
            answer = self._ask(json.dumps(request).encode() + b"\n")
        if "text" not in answer:
            raise Problem(refusal(answer["error"]))
        return str(answer["text"])

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def _ask(self, request: bytes) -> dict[str, Any]:
        """Return the process's answer. Raises `Endless` if it ends instead."""
        try:
            process = self._process or self.start()
            with suppress(BrokenPipeError):
                process.stdin.write(request)
                process.stdin.flush()
            return self._answer_of(process)
        except BaseException:
            self.close()
            raise

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, wait until it is ready, and return it."""
        kept = {name: value for name, value in os.environ.items() if name not in TOKENS}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(self._seconds)],
            env=kept | {"PYTHONPATH": python_path(_CODE, kept)} | _QUIET,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._answer_of(self._process)
        return self._process

    def _answer_of(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Return the next line of a process. Raises `Endless` if there is none."""
        until, line = time.monotonic() + _PATIENCE, b""
        while not line.endswith(b"\n"):
            wait = max(until - time.monotonic(), 0)
            ready = select.select([process.stdout], [], [], wait)[0]
            piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                raise Endless
            line += piece
        return dict(json.loads(line))


_MEMORY = 1 << 30
"""Bytes that a rendering may take beside what the process has already."""

_LONGEST = 1 << 26
"""Characters that a rendered conversation may have."""


def answer(request: dict[str, Any]) -> dict[str, str]:
    """Render the `conversation` of a request; return its `text`, or the `error` of the template.

    Raises `MemoryError` if that takes too much memory.
    """
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        texts, _ = render_jinja_template(
            [request["conversation"]],
            tools=request["tools"],
            chat_template=request["template"],
            add_generation_prompt=True,
            **request["variables"],
            **CONSTANTS,
        )
    except MemoryError:
        raise
    except Exception as error:  # a template can raise anything
        return {"error": f"{type(error).__name__}: {error}"[:1000]}
    if len(texts[0]) > _LONGEST:
        raise MemoryError
    return {"text": texts[0]}


def main(seconds: float) -> None:
    """Answer the requests on standard input, each within `seconds` of computing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer({"conversation": [], "tools": None, "template": "", "variables": {}})
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    print(json.dumps({}), flush=True)
    for line in sys.stdin:
        until = math.ceil(time.process_time() + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        print(json.dumps(answer(json.loads(line))), flush=True)


_OTHER_FILES = frozenset({"include", "import", "from", "extends"})

_HEAVY = re.compile(r"\*|\d{6,}|%\d{4,}|\blipsum\b|\b(ljust|rjust|center|zfill)\b")
"""Parts of a template that can compute for ever, or fill the memory, in one step."""

_ASK, _ANSWER = {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}
_CONVERSATIONS = ([_ASK], [_ASK, _ANSWER, _ASK])


def template_problems(tokenizer: Any) -> list[str]:
    """Return the faults of the chat templates of `tokenizer`, in sentences without a place."""
    known = tokenizer.chat_template or {}
    return [
        problem
        for template in (known.values() if isinstance(known, dict) else [known])
        for problem in _problems(tokenizer, template)
    ]


def _problems(tokenizer: Any, template: str) -> Iterator[str]:
    try:
        if other := sorted(_first_words(template) & _OTHER_FILES):
            yield f"its chat template needs another file ({', '.join(other)}), which is not read"
            return
        _try_out(tokenizer, template)
    except TemplateSyntaxError as error:
        yield f"its chat template cannot be read ({error.message} in line {error.lineno})"
    except Endless as error:
        yield f"its chat template cannot be used: {error}"


def _try_out(tokenizer: Any, template: str) -> None:
    """Render conversations, which the template may refuse.

    Raises `TemplateSyntaxError` if it is none, and `Endless` if it does not end.
    """
    with Renderer() as apart:
        for conversation in _CONVERSATIONS:
            try:
                if _HEAVY.search(template):
                    apart.render(template, conversation, tokenizer.special_tokens_map)
                with computing_at_most(SECONDS, Endless()):
                    tokenizer.apply_chat_template(
                        conversation, chat_template=template, tokenize=False, **CONSTANTS
                    )
            except (TemplateSyntaxError, Endless):
                raise
            except Exception:  # it wants other roles or parts, which a data set may have
                continue


def _first_words(template: str) -> set[str]:
    """Return the words that statements of a template begin with, such as `for`."""
    found, begins = set(), False
    for _, kind, text in Environment().lex(template):
        if kind == "name" and begins:
            found.add(text)
        begins = kind == "block_begin" or (begins and kind == "whitespace")
    return found


if __name__ == "__main__":
    main(float(sys.argv[1]))
