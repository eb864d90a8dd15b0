"""A process on a node that reports a run's changes over one connection, restarted if it breaks."""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import tempfile
import time
from contextlib import suppress
from importlib import resources
from typing import Any

from hearth_controller.base.paths import for_shell

# The program and its request are the first two lines of standard input, which then stays open:
# its end, however it comes about, ends the process on the node.
_LOADER = "import json, sys; exec(json.loads(sys.stdin.readline()))"
_PROGRAM = resources.files("hearth.record").joinpath("stream.py").read_text(encoding="utf-8")
_WAIT, _PING = 1.0, 5.0
_STALLED = 30.0
"""Seconds without a byte after which the connection is given up and made anew."""


class NodeStream:
    """The changes of a run on a node, as `hearth.record.stream` reports them.

    `connection` is Ansible's to the node, `python` a Python there (else `python3` is taken), and
    `files` are those of the request: the reported part is kept, so that a new connection goes on
    after it.

    Attributes:
        answered: when the last byte arrived (monotonic).
        error: why there is no connection, the last time that one broke.
    """

    def __init__(
        self,
        connection: Any,
        python: str,
        run: str,
        workspace: str,
        files: dict[str, int | None],
        interval: float = 1,
    ) -> None:
        self._connection, self._python = connection, python
        self._files = {name: {"place": None, "lines": lines} for name, lines in files.items()}
        self._request = {"run": run, "workspace": workspace, "interval": interval}
        self._process: subprocess.Popen[bytes] | None = None
        self._half, self._pinged = b"", 0.0
        self.answered, self.error = time.monotonic(), ""

    @property
    def silent(self) -> float:
        """Seconds since the last byte."""
        return time.monotonic() - self.answered

    def read(self) -> list[dict[str, Any]]:
        """Return the changes that arrive within a second; connect first where that is needed."""
        began = time.monotonic()
        try:
            changes = self._read()
        except Exception as error:  # of Ansible's connection, too
            self._broken(str(error))
            time.sleep(max(0.0, began + _WAIT - time.monotonic()))
            return []
        for change in changes:
            for name, kept in self._files.items():
                if more := change.get(name):
                    kept["place"] = more["place"]
        return changes

    def close(self) -> None:
        """End the process on the node."""
        if process := self._process:
            self._process = None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_WAIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def _read(self) -> list[dict[str, Any]]:
        process = self._process = self._process or self._start()
        if time.monotonic() - self._pinged > _PING:
            process.stdin.write(b"\n")
            self._pinged = time.monotonic()
        if not select.select([process.stdout], [], [], _WAIT)[0]:
            if self.silent > _STALLED:
                raise ConnectionError(f"no sign of life for {self.silent:.0f} s")
            return []
        data = os.read(process.stdout.fileno(), 1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        self.answered = time.monotonic()
        *lines, self._half = (self._half + data).split(b"\n")
        # A login shell may say something of its own.
        return [json.loads(line) for line in lines if line.startswith(b"{")]

    def _start(self) -> subprocess.Popen[bytes]:
        self._half, self._pinged = b"", time.monotonic()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
        process = subprocess.Popen(
            command(self._connection, self._python),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        request = self._request | {"files": self._files}
        with suppress(OSError):  # its error tells more
            process.stdin.write(f"{json.dumps(_PROGRAM)}\n{json.dumps(request)}\n".encode())
        return process

    def _broken(self, why: str) -> None:
        """Give the connection up; note what ssh, the shell or Python said."""
        output = ""
        if self._process:
            self.close()
            self._errors.seek(0)
            output = self._errors.read().decode("utf-8", "replace").strip()
        self.error = output.splitlines()[-1] if output else why


def command(connection: Any, python: str) -> list[str | bytes]:
    """Return the local command that runs a program from standard input on a node.

    `connection` is Ansible's connection plugin. Raises whatever that raises if there is no answer.
    """
    where = f'"$(command -v {for_shell(python)} || echo python3)"'
    script = f"exec {where} -ISc {shlex.quote(_LOADER)}"
    if connection.transport == "local":
        return ["/bin/sh", "-c", script]
    if connection.transport != "ssh":
        raise ConnectionError(f"cannot follow over the connection '{connection.transport}'")
    option = connection.get_option
    if option("password"):
        # Ansible enters it here; what follows shares the connection.
        connection.exec_command("true", sudoable=False)
    ssh = option("ssh_executable")
    parts = connection._build_command(
        ssh, "ssh", option("host"), f"/bin/sh -c {shlex.quote(script)}"
    )
    return parts[parts.index(ssh.encode()) :]  # without sshpass
