"""The run's log on this node: the lines of its supervisor, and what a launch has left there."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import suppress

from hearth.base.files import tail
from hearth.base.text import plain
from hearth.diagnose import failed_status, is_echo, killed_by, last_error
from hearth.ranks.control_protocol import RANK_APART
from hearth.supervisor.cause import Failure
from hearth.supervisor.kernel import kernel_said, kills_so_far
from hearth.supervisor.record import now
from hearth.supervisor.spec import Spec

LOG_TAIL = 1 << 20
"""Bytes at the end of a launch's log that are searched for the error."""

_ROOM = 1 << 16
"""Bytes without which a rank can write down no error."""


def say(spec: Spec, words: str) -> None:
    """Add a line to the run's log, and to standard error for systemd or a person."""
    line = f"hearth: {now()} {plain(words)}\n".replace("\n", "\n    ").rstrip(" ")
    with suppress(OSError), spec.log.open("a", errors="backslashreplace") as log:
        log.write(line)
    with suppress(OSError):
        sys.stderr.write(line)
        sys.stderr.flush()


class LaunchLog:
    """The part of the log that the last launch has written, and the kernel's messages since then.

    `begin` comes first.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._start = 0
        self._began, self._kills_before = 0.0, 0

    def begin(self) -> None:
        """Note that torchrun is about to be started."""
        log = self._spec.log
        self._start = log.stat().st_size if log.exists() else 0
        self._began, self._kills_before = time.time(), kills_so_far()

    def text(self) -> str:
        """Return the last part of this launch's log."""
        return tail(self._spec.log, LOG_TAIL, self._start)

    def failure(self, status: int, first_rank: int | None) -> Failure:
        """Return why a torchrun failed: the last real error in its log.

        `first_rank` is the number of this node's first rank, if torchrun has only this node's.
        """
        text = self.text()
        error = last_error(text, self._spec.folder, first_rank)
        if status < 0 and (error is None or error.rank is None or is_echo(error.message)):
            return Failure(None, f"torchrun was {killed_by(-status)}", curable=True)
        if error is None:
            # A rank that could say nothing of its error: of a full disk, or of none that is known.
            full = shutil.disk_usage(self._spec.log.parent).free < _ROOM
            message = f"torchrun ended with status {status}: see its log"
            if full:
                message = (
                    f"torchrun ended with status {status}, and its log cannot say why: the disk of "
                    f"{self._spec.log} is full; free some space, then resume the run"
                )
            return Failure(None, message, local=full)
        apart = not self._spec.scripted and failed_status(text) == RANK_APART
        return Failure(error.rank, error.placed, error.killed, apart or _is_local(error.message))

    async def kernel(self) -> list[str]:
        """Return the kernel's messages since the launch began."""
        return await kernel_said(self._began, self._kills_before)


def _is_local(error: str) -> bool:
    """Return whether an error is that of one machine, by the catalogue of known errors."""
    from hearth.diagnose.catalogue import is_local  # with pydantic, for which few runs have a need

    return is_local(error)
