"""Commands and programs on a node, whatever its login shell prints before them."""

from __future__ import annotations

import json
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hearth_controller.base.paths import for_shell

# The program and its request are the first two lines of standard input, which then stays open:
# its end, however it comes about, ends the process on the node.
_LOADER = "import json, sys; exec(json.loads(sys.stdin.readline()))"
_WAIT = 1.0
_OF_SSH = 255
"""The exit status of ssh itself, as when there is no connection."""
_MOST_SAID = 1 << 24
"""Bytes that a node may print as errors, and a login shell before the program's output."""
# The errors go to a file here; the shell's limit is in blocks of 512 bytes.
_BOUNDED = ("/bin/sh", "-c", f'ulimit -f {_MOST_SAID // 512}; exec "$@"', "sh")
_MARK = "hearth: the output begins"
_MARK_LINE = f"\n{_MARK}\n"
"""What a marked command prints first; a login shell may not have ended its last line."""

SHELL_ENDS = (
    "its login shell ends before it runs a command. Look for an `exit` in the user's ~/.bashrc and "
    "~/.profile on the machine, and write `return` in its place"
)

SHELL_TALKS = (
    "its login shell prints without end before it runs a command. Look for a loop in the user's "
    "~/.bashrc and ~/.profile on the machine"
)


def marked(command: str) -> str:
    """Return a shell command whose output `after_mark` can tell from that of the login shell."""
    return f"echo; echo {shlex.quote(_MARK)}; {command}"


def after_mark(output: str) -> str:
    """Return the output of a marked command. Raises `ConnectionError` if it was not run."""
    _, mark, own = output.partition(_MARK_LINE)
    if not mark:
        raise ConnectionError(SHELL_ENDS)
    return own


class NodeProgram:
    """A Python program that runs on a node.

    `connection` is Ansible's to the node, `python` a Python there (else `python3` is taken).
    `program` is the program's text; it reads `request` as a line of JSON.

    Attributes:
        process: the local process.
        begun: whether its output has begun: there is a connection, and the login shell is done.
    """

    def __init__(
        self, connection: Any, python: str, program: str, request: Mapping[str, Any]
    ) -> None:
        self._before, self._skipped, self.begun = b"", 0, False
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
        self.process = subprocess.Popen(
            [*_BOUNDED, *command(connection, python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        with suppress(OSError):  # its error tells more
            self.process.stdin.write(f"{json.dumps(program)}\n{json.dumps(request)}\n".encode())

    def read_once(self, size: int = 1 << 16) -> bytes | None:
        """Return the next bytes, b"" if they are the login shell's, None at the end.

        Raises `ConnectionError` if the login shell prints without end.
        """
        data = self.process.stdout.read(size)
        if not data or self.begun:
            return data or None
        self._skipped += len(data)
        _, mark, own = (self._before + data).partition(_MARK_LINE.encode())
        if not mark and self._skipped > _MOST_SAID:
            raise ConnectionError(SHELL_TALKS)
        self.begun = bool(mark)
        self._before = (self._before + data)[-len(_MARK_LINE) :]
        return own

    def read(self, size: int) -> bytes:
        """Return the next bytes, b"" at the end, as a file does."""
        while (data := self.read_once(size)) == b"":
            pass
        return data or b""

    def close(self) -> list[str]:
        """End the process; return the lines that ssh, the login shell or Python said as errors."""
        with suppress(OSError):
            self.process.stdin.close()
        try:
            status = self.process.wait(_WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.process.stdout.close()
        with self._errors as errors:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
        ended_early = not self.begun and 0 <= status != _OF_SSH
        return [*said, SHELL_ENDS] if ended_early else said


def command(connection: Any, python: str) -> list[str | bytes]:
    """Return the local command that runs a program from standard input on a node.

    `connection` is Ansible's connection plugin. Raises whatever that raises if there is no answer.
    """
    where = f'"$(command -v {for_shell(python)} || echo python3)"'
    script = marked(f"exec {where} -ISc {shlex.quote(_LOADER)}")
    if connection.transport == "local":
        return ["/bin/sh", "-c", script]
    if connection.transport != "ssh":
        raise ConnectionError(f"cannot run over the connection '{connection.transport}'")
    option = connection.get_option
    if option("password"):
        # Ansible enters it here; what follows shares the connection.
        connection.exec_command("true", sudoable=False)
    ssh = option("ssh_executable")
    parts = connection._build_command(
        ssh, "ssh", option("host"), f"/bin/sh -c {shlex.quote(script)}"
    )
    return parts[parts.index(ssh.encode()) :]  # without sshpass
