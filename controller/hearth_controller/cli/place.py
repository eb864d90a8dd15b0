"""The place where a command works: a checkout, its inventory and the folder of the user."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
"""The checkout that this package was installed from."""

IN_USE = Path("inventory") / ".in-use"
"""File of the checkout that holds the inventory of `hearth use`."""

_PLAIN = re.compile(r"[\w./:@%+,~-]*", re.ASCII)
"""Values that `ansible-playbook -e name=value` takes as they are."""


@dataclass(frozen=True)
class Place:
    """A checkout of Hearth, the inventory in use, and the folder where the user stands.

    `inventory` is absolute, or None for the default of ansible.cfg.
    """

    repository: Path = REPOSITORY
    inventory: str | None = None
    folder: Path = field(default_factory=Path.cwd)

    def command(
        self, playbook: str, words: Mapping[str, str], options: Sequence[str] = ()
    ) -> list[str]:
        """Return the `ansible-playbook` command for the repository's folder.

        `playbook` is a file's name without `.yml`, `words` come after `-e`, and `options` are
        further options of ansible-playbook.
        """
        top = (self.repository / f"{playbook}.yml").exists()
        line = ["ansible-playbook"]
        if self.inventory:
            line += ["-i", self._short(self.inventory)]
        line += [f"{playbook}.yml" if top else f"playbooks/{playbook}.yml"]
        for name, value in words.items():
            plain = _PLAIN.fullmatch(value)
            line += ["-e", f"{name}={value}" if plain else json.dumps({name: value})]
        return [*line, *options]

    def shown(self, line: Sequence[str]) -> str:
        """Return a command as a line for a shell, to be typed in the repository's folder."""
        return shlex.join(line)

    def play(
        self,
        playbook: str,
        words: Mapping[str, str],
        options: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Play a playbook in this terminal and return the exit status of ansible-playbook."""
        line = self.command(playbook, words, options)
        return self.run(line, environment or {})

    def run(self, line: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a command of `.venv` in the repository's folder and return its exit status."""
        program = Path(sys.executable).with_name(line[0])
        with _signals_left_to_the_child():
            return subprocess.run(
                [program, *line[1:]],
                cwd=self.repository,
                env=self.environment() | environment,
                check=False,
            ).returncode

    def environment(self) -> dict[str, str]:
        """Return this process's environment with `.venv` first in PATH and a UTF-8 locale."""
        folder = str(Path(sys.executable).parent)
        found = dict(os.environ)
        found["PATH"] = os.pathsep.join([folder, found.get("PATH", os.defpath)])
        return found

    def _short(self, path: str) -> str:
        """Return a path relative to the repository if it is inside it."""
        inside = Path(path).is_relative_to(self.repository)
        return str(Path(path).relative_to(self.repository)) if inside else path


def find_place(inventory: str | None = None) -> Place:
    """Return the place of this process.

    `inventory` is the one after `-i`; then ANSIBLE_INVENTORY counts, then that of `hearth use`.
    """
    folder = Path.cwd()
    if inventory is None and not (inventory := os.environ.get("ANSIBLE_INVENTORY")):
        in_use = REPOSITORY / IN_USE
        remembered = in_use.read_text(encoding="utf-8").strip() if in_use.is_file() else ""
        inventory = str(REPOSITORY / remembered) if remembered else None
    elif not inventory.endswith(","):  # a list of hosts is no file
        inventory = os.path.abspath(os.path.expanduser(inventory))
    return Place(REPOSITORY, inventory, folder)


@contextmanager
def _signals_left_to_the_child() -> Iterator[None]:
    """Ignore Ctrl-C in this process: the child gets it too, and ends as it must."""
    before = signal.signal(signal.SIGINT, lambda *_: None)  # unlike SIG_IGN it is not inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
