"""A person's own sensor, `lend_command`: a shell command that says no by its exit status."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

from hearth.base.aside import environment_aside, forget, start_aside
from hearth.base.text import plain

TIMEOUT = 10.0
"""Seconds after which a command that has not ended is killed, with its process group."""

EVERY = 10.0
"""Seconds between the starts of two runs of the command."""

NOT_FOUND = (126, 127)
"""Exit statuses of a shell for a program that cannot be executed or is missing."""

LATE = 20.0
"""Seconds after which an answer that is due counts as a no, whatever holds it up."""

_MARGIN = 5.0
_KEPT = 4096
_LONGEST = 120
_POLL = 0.05


def answer(command: str, folder: Path, timeout: float = TIMEOUT) -> tuple[int, str]:
    """Run the command in `folder` once; return its exit status and, unless it is 0, the reason.

    A command that does not end in time says no, with the status of a shell's `timeout`, 124. Its
    output is read to the end and not kept; processes that it leaves running are killed.
    """
    process = start_aside(
        # `timeout` ends it where this process is killed before it can.
        ["timeout", "--signal=KILL", f"{timeout + _MARGIN:g}", "/bin/sh", "-c", command],
        cwd=folder,
        env=environment_aside(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        head = _until_end(process, time.monotonic() + timeout)
        ended = process.poll()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        forget(process)
        process.stdout.close()
    if ended is None:
        return 124, f"lend_command did not answer within {timeout:g} s"
    return ended, "" if ended == 0 else _reason(ended, head)


class Command:
    """The command in a thread of its own, run every ten seconds; its last answer is at hand."""

    def __init__(self, command: str, folder: Path) -> None:
        self._command, self._folder = command, folder
        self._reason, self._at = "", time.monotonic()
        self._answered, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="lend_command", daemon=True)
        self._thread.start()

    def reason(self) -> str:
        """Return the last answer: "", or the reason why not. Only the first one is waited for.

        An answer that does not come, say from a disk that hangs, is a no.
        """
        if not self._answered.is_set():
            self._answered.wait(max(0.0, self._at + LATE - time.monotonic()))
        due = self._at + (EVERY if self._answered.is_set() else 0.0)
        if time.monotonic() - due >= LATE:
            return f"lend_command has not answered for more than {LATE:g} s"
        return self._reason

    def close(self) -> None:
        """Run it no more; a run in progress ends with its timeout, or with this process."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            began = time.monotonic()
            try:
                self._reason = answer(self._command, self._folder)[1]
            except OSError as error:
                self._reason = f"lend_command cannot be started: {error.strerror}"
            except Exception as error:  # must not end this thread: the last answer would stand
                self._reason = f"lend_command cannot be run: {type(error).__name__}: {error}"
            self._at = time.monotonic()
            self._answered.set()
            self._closed.wait(max(0.0, began + EVERY - time.monotonic()))


def _until_end(process: subprocess.Popen[bytes], deadline: float) -> bytes:
    """Wait until the process has ended or `deadline`; return the beginning of its output.

    Not until the end of its output, which a process in the background may hold open.
    """
    head = b""
    os.set_blocking(process.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            if selector.select(0 if ended else _POLL):
                chunk = process.stdout.read1(1 << 16)
                head = (head + chunk)[:_KEPT]
                if not chunk:  # all have closed it; what is left is the end
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(max(0.0, deadline - time.monotonic()))
                    break
            elif ended:
                break
    return head


def _reason(status: int, output: bytes) -> str:
    """Return the first line that a command printed, else a sentence about its exit status."""
    lines = [line.strip() for line in plain(output.decode(errors="replace")).splitlines()]
    said = next(filter(None, lines), "")[:_LONGEST]
    if status in NOT_FOUND:
        return f"lend_command cannot be run: {said or f'exit status {status}'}"
    return said or f"lend_command says no (exit status {status})"
