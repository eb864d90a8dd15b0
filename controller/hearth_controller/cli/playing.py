"""Play a playbook for a verb: in this terminal, or with its answer only."""

from __future__ import annotations

import json
import locale
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hearth.base.text import plain
from hearth_controller.base.answer import VARIABLE, Answer
from hearth_controller.base.paths import FOLDER
from hearth_controller.base.verdict import EXIT

INTERRUPTED = 130
"""The exit status after Ctrl-C, as in a shell."""

_BY_USER = 99
"""The exit status of ansible-playbook after Ctrl-C."""


@dataclass(frozen=True)
class Ended:
    """A play that has ended.

    Attributes:
        code: the exit status for the user, of `EXIT` or `INTERRUPTED`.
        answer: the answer of the play, None if it ended without any.
        output: what it printed, if that was captured.
    """

    code: int
    answer: Answer | None
    output: str = ""

    @property
    def failed(self) -> bool:
        """Whether tasks failed, or the play did not come to its end."""
        return self.answer is None or bool(self.answer.errors)

    def json(self) -> str:
        """Return the answer as JSON; without one, the output is the error."""
        answer = self.answer or Answer(
            "broken", errors=[{"node": "", "message": plain(self.output).strip()}]
        )
        return json.dumps(answer.for_programs(), indent=1)


def run(
    line: Sequence[str],
    repository: Path,
    folder: Path,
    *,
    captured: bool = False,
    to_errors: bool = False,
) -> Ended:
    """Run an ansible-playbook `line` of a repository for a user who stands in `folder`.

    The output comes to this terminal, unless it is `captured`, or goes `to_errors`.
    """
    shown = captured and sys.stdout.isatty()
    width = {"COLUMNS": str(shutil.get_terminal_size().columns)} if shown else {}
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "answer.json")
        process = subprocess.Popen(
            [Path(sys.executable).with_name(line[0]), *line[1:]],
            cwd=repository,
            env=environment(os.environ) | width | {VARIABLE: str(file), FOLDER: str(folder)},
            stdout=subprocess.PIPE if captured else sys.stderr if to_errors else None,
            stderr=subprocess.STDOUT if captured else None,
            text=True,
        )
        with _signals_reach(process):
            output, _ = process.communicate()
        answer = Answer.read(file)
    if answer:
        code = EXIT[answer.verdict]
    elif process.returncode in (_BY_USER, -signal.SIGINT):
        code = INTERRUPTED
    else:
        code = EXIT["broken"]
    return Ended(code, answer, output or "")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return an environment with this Python's programs first, and a locale that Ansible takes."""
    programs = str(Path(sys.executable).parent)
    found = {**given, "PATH": os.pathsep.join([programs, given.get("PATH", os.defpath)])}
    try:
        locale.setlocale(locale.LC_CTYPE, "")
    except locale.Error:  # this machine does not have the locale
        return found | {"LC_ALL": "C.UTF-8"}
    utf_8 = locale.nl_langinfo(locale.CODESET) == "UTF-8"
    return found if utf_8 else found | {"LC_ALL": "C.UTF-8"}


@contextmanager
def _signals_reach(process: subprocess.Popen[str]) -> Iterator[None]:
    """Leave Ctrl-C to the process, which gets it from the terminal; pass SIGTERM on to it."""
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
