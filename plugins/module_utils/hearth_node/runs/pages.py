"""Web servers that a person starts on a node, one of a kind at a time: start, find and stop them.

They listen on loopback only, without a password: every user of the node can open them.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.files import read_object
from ansible.module_utils.hearth_node.base import text_of, write_private

HOST = "127.0.0.1"

_MISSED = 5  # consecutive checks, a fifth of a second apart
_END = 10.0
_LAST_WORDS = re.compile(r"the endpoint has ended|hearth: error: |[\w.]*(Error|Exception)\b")
"""Beginnings of the lines that explain the end of a server."""
# The only variables of the caller that a server gets; tokens must not reach it.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class PageError(Exception):
    """A web server cannot be started or stopped; the message says why."""


@dataclass(frozen=True)
class Page:
    """A kind of web server.

    `title` is its name for a person, `files` that of its record in `config/` and of its log in
    `logs/`, `port` the one that it takes if it is free, `path` the page that answers once it is
    ready, within `seconds`.
    """

    title: str
    files: str
    port: int
    path: str = "/"
    seconds: float = 90.0

    def record_file(self, workspace: str) -> str:
        """Return the path of the file that records the node's server."""
        return os.path.join(workspace, "config", f"{self.files}.json")

    def log_file(self, workspace: str) -> str:
        """Return the path of the file that gets the server's output."""
        return os.path.join(workspace, "logs", f".{self.files}.log")

    def read_record(self, workspace: str) -> dict[str, Any]:
        """Return `run`, `port`, `pid` and `command` of the node's server; {} for none."""
        record = read_object(Path(self.record_file(workspace)))
        return record if record and alive(record) else {}

    def describe_gone(self, workspace: str) -> str:
        """Return why a server that was started here has ended by itself, or ''."""
        record = read_object(Path(self.record_file(workspace)))
        if not record or alive(record):
            return ""
        log = self.log_file(workspace)
        last = [line for line in text_of(log).splitlines() if _LAST_WORDS.match(line)]
        why = last[-1] if last else "it was killed, for lack of memory perhaps, or with its machine"
        run, port = record.get("run"), record.get("port")
        return f"{self.title} of {run} at port {port} is gone: {why} (its output: {log})"

    def answers(self, port: int) -> bool:
        """Return whether a server of this kind answers at a loopback port."""
        return fetch(port, self.path) is not None

    def free_port(self, wanted: int = 0) -> int:
        """Return the wanted port, or else a free one, preferably the usual one.

        Raises `PageError` if the wanted one is taken.
        """
        for port in (wanted,) if wanted else (self.port, 0):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                    return int(probe.getsockname()[1])
                except OSError:
                    continue
        raise PageError(
            f"port {wanted} of {HOST} is taken: choose another with -e port=, or leave it out"
        )

    def serve(
        self,
        workspace: str,
        run: str,
        wanted: int,
        command: Callable[[int], list[str]],
        variables: Mapping[str, str],
        check_mode: bool,
    ) -> tuple[bool, dict[str, Any]]:
        """Serve `run` and no other; return whether that changed anything, and the server's record.

        `wanted` is the port, 0 for any; `command` gives the command for a port. In check mode the
        record of a server that would be started is empty.

        Raises `PageError` if it cannot be served.
        """
        there = self.read_record(workspace)
        fits = there.get("run") == run and wanted in (0, there["port"])
        if fits and self.answers(there["port"]):
            return False, there
        if check_mode:
            return True, {}
        if there:
            self.stop(there)
        port = self.free_port(wanted)
        words = command(port)
        if not os.access(words[0], os.X_OK):
            raise PageError(f"there is no Python at {words[0]}; `hearth provision` makes it")
        return True, self.start(workspace, run, port, words, variables)

    def start(
        self,
        workspace: str,
        run: str,
        port: int,
        command: list[str],
        variables: Mapping[str, str],
    ) -> dict[str, Any]:
        """Start `command` for a run, wait until it answers at `port`, and return its record.

        Raises `PageError` if it does not.
        """
        log = self.log_file(workspace)
        with open(log, "w", encoding="utf-8"):  # empty the log of an earlier process
            pass
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        pid = _begin(command, {**kept, "HEARTH_WORKSPACE": workspace, **variables}, log)
        record = {"run": run, "port": port, "pid": pid, "command": command}
        write_private(self.record_file(workspace), json.dumps(record, indent=1) + "\n")
        until, missed = time.monotonic() + self.seconds, 0
        while not self.answers(port):
            # A process that has just started has no command line for a moment.
            missed = 0 if alive(record) else missed + 1
            if missed > _MISSED or time.monotonic() > until:
                self.stop(record)
                said = text_of(log).strip().splitlines()
                why = said[-1] if said else "it said nothing"
                raise PageError(f"{self.title} did not start: {why} (all it said: {log})")
            time.sleep(0.2)
        return record

    def stop(self, record: dict[str, Any]) -> None:
        """Stop the recorded server, and wait for it to exit.

        Raises `PageError` if it does not exit.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not alive(record):
                return
            os.kill(record["pid"], number)
            until = time.monotonic() + _END
            while alive(record) and time.monotonic() < until:
                time.sleep(0.1)
        if alive(record):
            raise PageError(f"process {record['pid']} does not end")

    def end(self, workspace: str, check_mode: bool) -> dict[str, Any]:
        """Stop the node's server, if there is one and not in check mode; return it.

        The record of one that is gone by itself is removed.
        """
        there = self.read_record(workspace)
        if check_mode:
            return there
        if there:
            self.stop(there)
        with suppress(FileNotFoundError):
            os.unlink(self.record_file(workspace))
        return there


def alive(record: Mapping[str, Any]) -> bool:
    """Return whether the recorded process exists and has its command line: pids are reused."""
    # The first word may be a link or a wrapper, which stands there under another name.
    words = list(record.get("command") or ())[1:]
    shown = text_of(f"/proc/{record.get('pid')}/cmdline").split("\0")[:-1]
    return bool(words) and shown[-len(words) :] == words


def fetch(port: int, path: str) -> str | None:
    """Return the page at `path` of a loopback port; None if no web server has it."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return text if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _begin(command: list[str], variables: dict[str, str], log: str) -> int:
    """Start a process in a session of its own; return its pid."""
    with open(log, "ab") as said:
        child = subprocess.Popen(
            command,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return child.pid
