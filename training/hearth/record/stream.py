"""Report a run's state, metrics and log on this node as JSON lines until the reader leaves.

The controller sends this file to the node's Python and keeps its standard input open. It imports
only the standard library and runs on Python 3.9: the run's own environment may be gone.
"""

from __future__ import annotations

import codecs
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from typing import Any

_CHUNK = 1 << 15
_HEARTBEAT = 3.0
_BETWEEN_QUERIES = 3.0
"""Seconds between two queries of Slurm's queue."""

_READER_TIMEOUT = 60
"""Seconds without a word of the reader after which this process ends, also in a blocked write."""


class Tail:
    """A growing file; `place` is its inode and the offset of the reader.

    `lines` skips all but the last lines of a file that is new to the reader.
    """

    def __init__(self, path: str, place: list[int] | None, lines: int | None) -> None:
        self._path, self._lines = path, lines
        self.place = place or [0, 0]

    def more(self) -> dict[str, Any] | None:
        """Return the next bytes as text, and the place after them; None without a file.

        `anew` tells that they are not a continuation, `behind` that there are more.
        """
        try:
            with open(self._path, "rb") as file:
                status = os.fstat(file.fileno())
                inode, offset = self.place
                anew = inode != status.st_ino or offset > status.st_size
                if anew:
                    offset = 0
                if self._lines is not None and not inode:
                    offset = _start_of_last(file, self._lines)
                file.seek(offset)
                data = file.read(_CHUNK)
        except OSError:
            return None
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(data)
        half_of_a_character = len(decoder.getstate()[0])
        self.place = [status.st_ino, offset + len(data) - half_of_a_character]
        return {
            "place": self.place,
            "anew": anew,
            "behind": offset + len(data) < status.st_size,
            "text": text,
        }


class RunStream:
    """A run on this node; `request` names `run`, `workspace` and the `files` to read.

    `queue` is the command that lists the run's jobs in Slurm's queue. `files` has `metrics` or
    `log`, each with a `place` and the number of last `lines`, either of them None.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        workspace, run = os.path.expanduser(request["workspace"]), request["run"]
        results = os.path.join(workspace, "results", run)
        paths = {
            "metrics": os.path.join(results, "metrics.jsonl"),
            "log": os.path.join(workspace, "logs", f"{run}.log"),
        }
        self._tails = {name: Tail(paths[name], **how) for name, how in request["files"].items()}
        self._record = os.path.join(results, "supervisor.json")
        self._state: dict[str, Any] | None = None
        self._command = request["queue"]
        self._queue: list[Any] | None = None
        self._asked = 0.0

    def changes(self) -> dict[str, Any]:
        """Return the changes since the last call; the first time, everything."""
        state, first = self._state_now(), self._state is None
        found = {} if state == self._state else dict(state)
        self._state = state
        for name, tail in self._tails.items():
            more = tail.more()
            if first or (more and (more["text"] or more["anew"])):
                found[name] = more
        return found

    def _state_now(self) -> dict[str, Any]:
        """Return the supervisor's record, None without one, and whether its process is alive.

        Of an open run under Slurm whose supervisor is not alive, also the `queue` (`_queue_now`).
        """
        try:
            with open(self._record, encoding="utf-8") as file:
                record = json.load(file)
        except (OSError, ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            return {"record": None, "alive": False}
        record.pop("heartbeat", None)  # it changes all the time
        state = {"record": record, "alive": _lives(record)}
        is_open = record.get("state") in ("queued", "waiting", "running")
        if is_open and not state["alive"] and record.get("job") is not None:
            state["queue"] = self._queue_now()
        return state

    def _queue_now(self) -> list[Any] | None:
        """Return status, output and errors of the command that lists the run's jobs."""
        if self._queue is None or time.monotonic() - self._asked > _BETWEEN_QUERIES:
            try:
                done = subprocess.run(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=10,
                )
                self._queue = [done.returncode, done.stdout, done.stderr]
            except (OSError, subprocess.SubprocessError) as error:
                self._queue = [1, "", str(error)]
            self._asked = time.monotonic()
        return self._queue


def _lives(record: dict[str, Any]) -> bool:
    """Return whether the supervisor that wrote a record is alive."""
    try:
        os.kill(record["pid"], 0)
    except (OSError, KeyError, TypeError, OverflowError):
        return False
    # Under Slurm it was written before there was a supervisor.
    return record.get("state") != "queued" or record.get("job") is None


def _start_of_last(file: Any, lines: int) -> int:
    """Return the offset of the last lines of a file."""
    starts: deque[int] = deque(maxlen=lines)
    offset = 0
    for line in file:
        starts.append(offset)
        offset += len(line)
    return starts[0] if starts else offset


def stream(request: dict[str, Any]) -> None:
    """Print the changes every `interval` seconds, and a heartbeat if there is none for long."""
    watch, printed = RunStream(request), 0.0
    signal.alarm(_READER_TIMEOUT)
    while True:
        changes = watch.changes()
        if changes or time.monotonic() - printed >= _HEARTBEAT:
            print(json.dumps(changes), flush=True)
            printed = time.monotonic()
        behind = any(isinstance(part, dict) and part.get("behind") for part in changes.values())
        if select.select([0], [], [], 0 if behind else request["interval"])[0]:
            if not os.read(0, 4096):
                return
            signal.alarm(_READER_TIMEOUT)


if __name__ == "__main__":
    stream(json.loads(sys.stdin.readline()))
