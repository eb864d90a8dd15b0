"""Rendering of chat templates in a process of its own, which ends if a template does not."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hearth.base.places import TOKENS, python_path
from hearth.data.findings import Endless, Problem
from hearth.data.template import SECONDS, refusal

_CODE, _PROGRAM = Path(__file__).parents[2], "hearth.data.renderer"
_QUIET = {"OPENBLAS_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}

_PATIENCE = 120.0
"""Seconds to wait for an answer, on a computer with much else to do."""


class Renderer:
    """A process that renders chat templates. It is started when it is needed, and then kept."""

    def __init__(self, seconds: float = SECONDS, patience: float = _PATIENCE) -> None:
        self._seconds, self._patience = seconds, patience
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
        prompt: bool = True,
    ) -> str:
        """Return a conversation as text, by default with the prompt for the next answer.

        `variables` are those that the template knows beside it.

        Raises `Problem` if the template refuses the conversation, `Endless` if it does not come to
        an end.
        """
        request = {
            "template": template,
            "conversation": list(conversation),
            "variables": dict(variables),
            "tools": list(tools) if tools else None,
            "prompt": prompt,
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
        until, line = time.monotonic() + self._patience, b""
        while not line.endswith(b"\n"):
            wait = max(until - time.monotonic(), 0)
            ready = select.select([process.stdout], [], [], wait)[0]
            piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                raise Endless
            line += piece
        return dict(json.loads(line))
