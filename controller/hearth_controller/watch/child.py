"""Playbooks played as child processes of a live view."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import Any, Protocol

from hearth.base.text import plain

_LONGEST = 1 << 20
"""Bytes of a line of output."""

_TO_END = 10.0
"""Seconds that a play has to end after an interrupt."""


class Checkout(Protocol):
    """What a play needs to know of the place of a command (`hearth_controller.cli.place`)."""

    @property
    def repository(self) -> Path:
        """The folder in which playbooks are played."""

    def command(self, playbook: str, words: Mapping[str, str]) -> list[str]:
        """Return the command that plays a playbook with these words after `-e`."""

    def environment(self) -> dict[str, str]:
        """Return the environment of a play."""


async def play(
    checkout: Checkout,
    playbook: str,
    words: Mapping[str, str],
    say: Callable[[str], None],
    environment: Mapping[str, str] | None = None,
) -> int:
    """Play a playbook, hand each line of its output to `say`, and return its exit status.

    Cancelled, it interrupts the play as Ctrl-C would.
    """
    program, *rest = checkout.command(playbook, words)
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name(program),
        *rest,
        cwd=checkout.repository,
        env={**checkout.environment(), **(environment or {})},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # Ctrl-C in the terminal is for the view
        limit=_LONGEST,
    )
    try:
        async for line in process.stdout:
            say(plain(line.decode("utf-8", "replace")).rstrip())
        return await process.wait()
    finally:
        await _end(process)


async def read_status(checkout: Checkout) -> tuple[dict[str, Any] | None, list[str]]:
    """Play status.yml; return the status object, None if there is none, and the play's output."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "status.json")
        await play(checkout, "status", {"status_file": str(file)}, lines.append)
        with suppress(OSError, ValueError):
            return json.loads(file.read_text(encoding="utf-8")), lines
    return None, lines


async def _end(process: asyncio.subprocess.Process) -> None:
    """Interrupt a play that has not ended; kill it if that does not help."""
    with suppress(ProcessLookupError):
        if process.returncode is None:
            process.send_signal(SIGINT)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), _TO_END)
        if process.returncode is None:
            process.kill()
            await process.wait()
