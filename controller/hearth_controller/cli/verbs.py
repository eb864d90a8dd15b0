"""The verbs of the `hearth` command, in the groups of its first screen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType


@dataclass(frozen=True)
class Verb:
    """A verb: a playbook with some habits, or a module of this package, or both.

    Attributes:
        about: its line of help; that of a playbook is in the table of words.
        module: a module with `add_arguments` and `run`, for more than a playbook.
        positional: the word that needs no flag.
        shown: the positional's name in help, by default its own in capitals.
        first: the words that `--help` shows, if that is not all.
        quiet: whether only the answer is shown, and not the play.
        asks: whether it needs root on the machines, so that Ansible's options are shown.
    """

    name: str
    about: str = ""
    module: str = ""
    positional: str = ""
    shown: str = ""
    first: tuple[str, ...] = ()
    quiet: bool = False
    asks: bool = False

    def load(self) -> ModuleType:
        """Import the verb's module, which may be slow to import."""
        return import_module(f"hearth_controller.cli.{self.module}")


_TRAIN = (
    *("model", "dataset", "nodes", "epochs", "max_steps", "learning_rate", "sequence_length"),
    *("global_batch", "run", "preview", "at", "wait"),
)

GROUPS: Mapping[str, tuple[Verb, ...]] = {
    "start": (
        Verb("init", "find your machines and write an inventory", "init", shown="FOLDER"),
        Verb("use", "choose the inventory to work with", "use", shown="FOLDER"),
        Verb("provision", asks=True),
        Verb("models", quiet=True),
    ),
    "train": (
        Verb("train", positional="model", first=_TRAIN),
        Verb("resume", positional="run", first=("run", "nodes", "epochs", "max_steps", "wait")),
        Verb("stop", positional="run"),
        Verb("benchmark", positional="model", first=(*_TRAIN[:3], "steps", "repeat")),
    ),
    "watch": (
        Verb("status", module="status", quiet=True),
        Verb("watch", "show a run live in this terminal", "watch", shown="RUN"),
        Verb("attach", positional="run"),
        Verb("logs", positional="run"),
        Verb("runs", quiet=True),
        Verb("dashboard", positional="run"),
    ),
    "after": (
        Verb("chat", module="chat", positional="run"),
        Verb("eval", positional="eval", shown="TASKS"),
        Verb("export", positional="run"),
        Verb("share", positional="run"),
    ),
    "machines": (
        Verb("doctor", quiet=True, asks=True),
        Verb("lend", positional="lend", shown="off|on|auto", quiet=True),
        Verb("distribute", positional="model", first=_TRAIN[:3]),
        Verb("reboot", asks=True),
        Verb("reset", asks=True),
        Verb("update", "bring this checkout and its packages up to date", "update"),
    ),
}
"""The verbs by heading."""

VERBS: Mapping[str, Verb] = {verb.name: verb for group in GROUPS.values() for verb in group}
"""The verbs by name."""
