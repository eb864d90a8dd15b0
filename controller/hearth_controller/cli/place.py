"""The place where a command works: a checkout, its inventory and the folder of the user."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hearth_controller.base.paths import FOLDER
from hearth_controller.cli import playing
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
        return playing.run(line, self.repository, self.folder).code

    def ask(
        self,
        playbook: str,
        words: Mapping[str, str],
        options: Sequence[str] = (),
        *,
        captured: bool = True,
    ) -> playing.Ended:
        """Play a playbook for its answer; its output is `captured`, or goes to stderr."""
        line = self.command(playbook, words, options)
        return playing.run(
            line, self.repository, self.folder, captured=captured, to_errors=not captured
        )

    def environment(self) -> dict[str, str]:
        """Return the environment of a play that is not in this terminal."""
        return playing.environment(os.environ) | {FOLDER: str(self.folder)}

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
