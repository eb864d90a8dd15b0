"""The place where a command works, and the plays that it starts there."""

from __future__ import annotations

import json
import locale
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hearth.base.text import plain
from hearth_controller.base.answer import VARIABLE, Answer
from hearth_controller.base.paths import FOLDER
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.paths import Paths

REPOSITORY = Path(__file__).resolve().parents[3]
"""The checkout that this package was installed from."""

IN_USE = Path("inventory", ".in-use")
"""File of the checkout with the inventory of `hearth use`."""

_PLAIN = re.compile(r"[\w./:@%+,~*=-]*", re.ASCII)
"""Values that `ansible-playbook -e name=value` takes as they are."""


@dataclass(frozen=True)
class Place:
    """A checkout of Hearth, the inventory in use, and the folder where the user stands.

    `inventory` is absolute, or None for that of ansible.cfg.
    """

    repository: Path = REPOSITORY
    inventory: str | None = None
    folder: Path = field(default_factory=Path.cwd)

    def command(
        self, playbook: str, words: Mapping[str, str], options: Sequence[str] = ()
    ) -> list[str]:
        """Return the `ansible-playbook` command, for the repository's folder.

        `playbook` is a file's name without `.yml`, `words` come after `-e`, and `options` are
        further options of ansible-playbook.
        """
        file = f"{playbook}.yml"
        line = ["ansible-playbook"]
        if self.inventory:
            line += ["-i", self._short(self.inventory)]
        line.append(file if (self.repository / file).exists() else f"playbooks/{file}")
        for name, value in words.items():
            plain = _PLAIN.fullmatch(value)
            line += ["-e", f"{name}={value}" if plain else json.dumps({name: value})]
        return [*line, *options]

    def shown(self, playbook: str, words: Mapping[str, str], options: Sequence[str] = ()) -> str:
        """Return the command as a line for a shell."""
        return shlex.join(self.command(playbook, words, options))

    def play(self, playbook: str, words: Mapping[str, str], options: Sequence[str] = ()) -> int:
        """Play a playbook in this terminal; return the exit status for the user."""
        line = self.command(playbook, words, options)
        return run_play(line, self.repository, self.folder).code

    def ask(
        self,
        playbook: str,
        words: Mapping[str, str],
        options: Sequence[str] = (),
        *,
        captured: bool = True,
    ) -> PlayResult:
        """Play a playbook for its answer; its output is `captured`, or goes to stderr."""
        line = self.command(playbook, words, options)
        return run_play(
            line, self.repository, self.folder, captured=captured, to_errors=not captured
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of a play that is not in this terminal."""
        return environment(os.environ) | {FOLDER: str(self.folder)}

    def _short(self, path: str) -> str:
        """Return a path relative to the repository if it is inside it."""
        inside = Path(path).is_relative_to(self.repository)
        return str(Path(path).relative_to(self.repository)) if inside else path


def find_place(inventory: str | None = None) -> Place:
    """Return the place of this process.

    `inventory` is the one after `-i`; then ANSIBLE_INVENTORY counts, then that of `hearth use`.
    """
    paths = Paths(Path.cwd(), REPOSITORY)
    return Place(REPOSITORY, inventory_of(inventory, os.environ, paths), paths.folder)


def inventory_of(typed: str | None, environment: Mapping[str, str], paths: Paths) -> str | None:
    """Return the inventory that counts as an absolute path, None for that of ansible.cfg."""
    if inventory := typed or environment.get("ANSIBLE_INVENTORY"):
        if "," in inventory:  # a list of hosts, or of several inventories
            return inventory
        return str(paths.repository / paths.of_path(inventory))
    in_use = paths.repository / IN_USE
    remembered = in_use.read_text(encoding="utf-8").strip() if in_use.is_file() else ""
    return str(paths.repository / remembered) if remembered else None


INTERRUPTED = 130
"""The exit status after Ctrl-C, as in a shell."""

_BY_USER = 99
"""The exit status of ansible-playbook after Ctrl-C."""


@dataclass(frozen=True)
class PlayResult:
    """A play that has ended.

    Attributes:
        code: the exit status for the user, of `EXIT` or `INTERRUPTED`.
        answer: the answer of the play, None if it ended without any.
        output: the printed text, if that was captured.
    """

    code: int
    answer: Answer | None
    output: str = ""

    @property
    def failed(self) -> bool:
        """Whether tasks failed, or the play was cut short."""
        return self.answer is None or bool(self.answer.errors)

    def json(self) -> str:
        """Return the answer as JSON; without one, the output is the error."""
        answer = self.answer or Answer(
            "broken", errors=[{"node": "", "message": plain(self.output).strip()}]
        )
        return json.dumps(answer.for_programs(), indent=1)


def run_play(
    line: Sequence[str],
    repository: Path,
    folder: Path,
    *,
    captured: bool = False,
    to_errors: bool = False,
) -> PlayResult:
    """Run an ansible-playbook `line` of a repository for a user who stands in `folder`.

    The output is written to this terminal, unless it is `captured`, or goes `to_errors`.
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
    return PlayResult(code, answer, output or "")


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
