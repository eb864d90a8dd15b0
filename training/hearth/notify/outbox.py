"""Messages on their way: each in a child process, so that no run waits for them."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hearth.base.aside import environment_aside, forget, start_aside
from hearth.notify.event import Event

TIMEOUT = 30.0
"""Seconds after which a message that did not arrive is given up."""

_CODE = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class _Sending:
    process: subprocess.Popen[bytes]
    event: Event
    until: float


class Outbox:
    """Sends events to the addresses of a run.

    `urls` are apprise's, separated by blanks; without any nothing is sent. `say` takes lines for
    the log, which show no more of an address than its scheme.
    """

    def __init__(self, urls: str, say: Callable[[str], None]) -> None:
        self._urls = urls.split()
        self._say = say
        self._sending: list[_Sending] = []

    def send(self, event: Event) -> None:
        """Start to send an event, and return at once."""
        if not self._urls:
            return
        request = json.dumps({"urls": self._urls, "event": dataclasses.asdict(event)})
        try:
            process = start_aside(
                [sys.executable, "-m", "hearth.notify", "send"],
                cwd="/",
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a signal to the supervisor's group does not end it
            )
        except OSError as error:
            self._say(f"no message was sent: {sys.executable}: {error.strerror}")
            return
        self._sending.append(_Sending(process, event, time.monotonic() + TIMEOUT))
        assert process.stdin
        with suppress(OSError):  # a child that ended at once has told nothing, which is said later
            process.stdin.write(request.encode())
            process.stdin.close()

    def collect(self) -> None:
        """Log the outcome of messages whose child has ended; end one that takes too long."""
        for each in self._sending[:]:
            if time.monotonic() > each.until:
                each.process.kill()
                each.process.wait()
            if each.process.poll() is not None:
                forget(each.process)
                self._sending.remove(each)
                self._report(each)

    def finish(self) -> None:
        """Wait until every message has arrived or is given up."""
        for each in self._sending[:]:
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(max(0.0, each.until - time.monotonic()))
        self.collect()

    def _report(self, sending: _Sending) -> None:
        """Log how a message fared."""
        assert sending.process.stdout
        with sending.process.stdout as output:
            lines = output.read().decode(errors="replace").splitlines()
        what = f"the message that the run {_SAID[sending.event.kind]}"
        self._say(f"{what}: " + ("; ".join(lines) or "it could not be sent"))


_SAID = {
    "finished": "has finished",
    "failed": "has failed",
    "stopped": "was stopped",
    "apart": "goes on without this node",
    "disk": "goes on without this node's checkpoints",
    "waiting": "waits",
    "back": "goes on",
    "unreached": "has nodes that do not reach each other",
}
"""What a message says, for the log."""


def _environment() -> dict[str, str]:
    """Return the child's environment: no secrets, and not the name of its workspace.

    A later supervisor ends the processes that carry that name.
    """
    own = {"PYTHONPATH": str(_CODE), "PYTHONSAFEPATH": "1"}
    return environment_aside("SLURM_") | own
