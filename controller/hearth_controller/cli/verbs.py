"""The verbs of the `hearth` command, in groups."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Verb:
    """A verb: its line of help, and the playbook that it plays or the module that runs it."""

    name: str
    about: str
    module: str = ""
    """Name of the module of this package with `add_arguments` and `run`."""

    @property
    def playbook(self) -> str:
        """The name of the playbook, without `.yml`."""
        return self.name


GROUPS: dict[str, tuple[Verb, ...]] = {
    "start": (
        Verb("init", "find your machines and write an inventory", module="init"),
        Verb("use", "remember the inventory to work with", module="use"),
        Verb("provision", "prepare the machines: network, drivers, Python"),
    ),
    "watch": (
        Verb("status", "show runs and nodes as a table, JSON or metrics"),
        Verb("watch", "show a run live in this terminal", module="watch"),
    ),
}
"""The verbs under the headings of the first screen."""

VERBS: dict[str, Verb] = {verb.name: verb for group in GROUPS.values() for verb in group}
"""The verbs by name."""


def module_of(verb: Verb) -> ModuleType:
    """Import the module of a verb that is more than a playbook."""
    from importlib import import_module

    return import_module(f"hearth_controller.cli.{verb.module}")
