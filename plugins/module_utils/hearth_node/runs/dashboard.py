"""Start, find and stop TensorBoard on a node, for one run at a time.

It listens on loopback only, without a password: every user of the node can open it.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.files import read_object
from ansible.module_utils.hearth_node.base import text_of, write_private

HOST = "127.0.0.1"
PORT = 6006
"""TensorBoard's default; a free one is used if it is taken."""

_START = 90.0
_MISSED = 5  # consecutive checks, a fifth of a second apart
_END = 10.0
# The only variables that TensorBoard needs; tokens must not reach it.
_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")


class DashboardError(Exception):
    """TensorBoard cannot be started or stopped; the message says why."""


def curves(workspace: str, run: str) -> str:
    """Return the folder of a run's TensorBoard event files."""
    return os.path.join(workspace, "results", run, "tensorboard")


def offline_runs(workspace: str, run: str) -> list[str]:
    """Return the folders of a run's unsynced offline wandb data, one per launch."""
    folder = os.path.join(workspace, "results", run, "wandb")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if name.startswith("offline-run-")]


def record_file(workspace: str) -> str:
    """Return the path of the file that records the node's TensorBoard."""
    return os.path.join(workspace, "config", "tensorboard.json")


def read_record(workspace: str) -> dict[str, Any]:
    """Return `run`, `logdir`, `port` and `pid` of the node's TensorBoard; {} for none."""
    record = read_object(Path(record_file(workspace)))
    return record if record and alive(record) else {}


def alive(record: dict[str, Any]) -> bool:
    """Return whether the recorded process exists and is TensorBoard: pids are reused."""
    words = text_of(f"/proc/{record.get('pid')}/cmdline").split("\0")
    return "tensorboard.main" in words and record.get("logdir") in words


def answers(port: int) -> bool:
    """Return whether a web server answers at a loopback port."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port(wanted: int = 0) -> int:
    """Return the wanted port, or else a free one, preferably TensorBoard's default.

    Raises `DashboardError` if the wanted one is taken.
    """
    for port in (wanted,) if wanted else (PORT, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    raise DashboardError(
        f"port {wanted} of {HOST} is taken: choose another with -e dashboard_port=, or leave it out"
    )


def start(python: str, workspace: str, run: str, port: int) -> dict[str, Any]:
    """Start TensorBoard for a run, wait until it answers, and return its record.

    Raises `DashboardError` if it does not.
    """
    logdir, log = curves(workspace, run), os.path.join(workspace, "logs", ".tensorboard.log")
    command = [python, "-m", "tensorboard.main", "--logdir", logdir, "--host", HOST]
    command += ["--port", str(port), "--load_fast", "false", "--window_title", run]
    with open(log, "w", encoding="utf-8"):  # empty the log of an earlier process
        pass
    variables = {name: os.environ[name] for name in _KEPT if name in os.environ}
    variables["HEARTH_WORKSPACE"] = workspace
    pid = _begin(command, variables, log)
    record = {"run": run, "logdir": logdir, "port": port, "pid": pid}
    write_private(record_file(workspace), json.dumps(record, indent=1) + "\n")
    until, missed = time.monotonic() + _START, 0
    while not answers(port):
        # A process that has just started has no command line for a moment.
        missed = 0 if alive(record) else missed + 1
        if missed > _MISSED or time.monotonic() > until:
            stop(record)
            said = text_of(log).strip().splitlines()
            why = said[-1] if said else "it said nothing"
            raise DashboardError(f"TensorBoard did not start: {why} (all it said: {log})")
        time.sleep(0.2)
    return record


def stop(record: dict[str, Any]) -> None:
    """Stop the recorded TensorBoard, and wait for it to exit.

    Raises `DashboardError` if it does not exit.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not alive(record):
            return
        os.kill(record["pid"], number)
        until = time.monotonic() + _END
        while alive(record) and time.monotonic() < until:
            time.sleep(0.1)
    if alive(record):
        raise DashboardError(f"process {record['pid']} does not end")


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
