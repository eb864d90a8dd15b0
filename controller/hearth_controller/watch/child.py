"""Playbooks played as child processes of a live view."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM
from typing import Protocol

from hearth.base.text import plain
from hearth_controller.base.answer import VARIABLE, Answer

_LONGEST = 1 << 20
"""Bytes of a line of output."""

_ENDINGS = ((SIGINT, 3), (SIGTERM, 10), (SIGKILL, 10))
"""Signals that end a play, and the seconds that it has after each.

An interrupt ends Ansible's workers, too; what was started in the background may ignore it.
"""


class Checkout(Protocol):
    """Place of a command, as far as a play needs it (`hearth_controller.cli.place`)."""

    @property
    def repository(self) -> Path:
        """The working folder of playbooks."""

    def command(self, playbook: str, words: Mapping[str, str]) -> list[str]:
        """Return the command that plays a playbook with these words after `-e`."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a play."""


async def play(
    checkout: Checkout,
    playbook: str,
    words: Mapping[str, str],
    say: Callable[[str], object] = lambda line: None,
    environment: Mapping[str, str] | None = None,
) -> Answer:
    """Play a playbook, hand each line of its output to `say`, and return its answer.

    Without an answer of its own, the output is the error. Cancelled, it interrupts the play as
    Ctrl-C would.
    """
    program, *rest = checkout.command(playbook, words)
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "answer.json")
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name(program),
            *rest,
            cwd=checkout.repository,
            env={**checkout.environment(), **(environment or {}), VARIABLE: str(file)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C in the terminal is for the view
            limit=_LONGEST,
        )
        try:
            async for line in process.stdout:
                lines.append(plain(line.decode("utf-8", "replace")).rstrip())
                say(lines[-1])
            await process.wait()
        finally:
            await _end(process)
        if answer := Answer.read(file):
            return answer
    return Answer("broken", errors=[{"node": "", "message": "\n".join(lines).strip()}])


def describe(answer: Answer) -> str:
    """Return the answer of a play for people: its text, then its errors by node."""
    errors = [
        f"{error['node']}: {error['message']}" if error["node"] else error["message"]
        for error in answer.errors
    ]
    return plain("\n".join([answer.text, *errors])).strip("\n")


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a play that has not ended, with more and more force."""
    for number, seconds in _ENDINGS:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
