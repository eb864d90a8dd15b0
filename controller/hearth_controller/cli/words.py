"""The words of playbooks as flags: from the table of words to a parser, and back to `-e`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth_controller.base.options import read_yaml
from hearth_controller.cli.paths import Paths

SPECS = Path("playbooks", "meta", "argument_specs.yml")
"""The table of words, in a checkout."""

SWITCH = "on|off"
"""The placeholder of a switch, which is on where it stands alone."""

_MARKUP = re.compile(r"\b[CVOM]\((.*?)\)")
_PLACEHOLDERS = {"int": "N", "float": "X", "list": "A,B", "path": "FILE", "raw": "TEXT"}
_OF_SETTINGS = {
    "model": "preset, name on the Hub (owner/name) or local folder",
    "run": "name of the run; by default the newest",
}
"""Descriptions of positionals that are settings of a run."""
_HIDDEN = "train"
"""A word that holds settings; each setting has a flag of its own."""


@dataclass(frozen=True)
class Words:
    """The words of one playbook, as the table declares them."""

    about: str
    specs: Mapping[str, Mapping[str, Any]]

    @property
    def takes_settings(self) -> bool:
        """Whether every setting of a run may be typed, too."""
        return "config" in self.specs


def read_words(repository: Path) -> dict[str, Words]:
    """Return the words by playbook."""
    text = (repository / SPECS).read_text(encoding="utf-8")
    entries = read_yaml(text)["argument_specs"]
    return {
        name: Words(entry["short_description"], entry.get("options", {}))
        for name, entry in entries.items()
    }


def add_words(parser: argparse.ArgumentParser, words: Words, positional: str, shown: str) -> None:
    """Add a flag per word to `parser`; the `positional` may also stand without its flag.

    A word that is not given is not in the namespace either.
    """
    # pylint: disable=protected-access
    group = parser._optionals
    for name, spec in words.specs.items():
        if name != _HIDDEN:
            _add_word(group, name, spec)
    if words.takes_settings:
        from hearth.config.cli import add_settings  # slow to import

        add_settings(parser, without=words.specs, by_hand=False)
    if positional:
        flag = next(action for action in parser._actions if action.dest == positional)
        action = group.add_argument(
            positional,
            action=_Positional,
            nargs="?",
            default=argparse.SUPPRESS,
            metavar=shown or positional.upper(),
            help=flag.help if positional in words.specs else _OF_SETTINGS[positional],
        )
        action.check = flag.type or str
        action.words = getattr(flag, "words", None)
        flag.help = argparse.SUPPRESS
        group._group_actions.insert(0, group._group_actions.pop())  # it is typed first


class _Positional(argparse.Action):
    """Store a value that `check` accepts; `type` would be asked for a missing one, too."""

    def __call__(self, parser: Any, namespace: Any, values: Any, *_: Any) -> None:
        try:
            setattr(namespace, self.dest, self.check(values))
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentError(self, str(error)) from None


def missing(given: argparse.Namespace, words: Words) -> list[str]:
    """Return a finding for each required word that was not given."""
    return [
        f"{_flag(name)} is missing: {_help(spec)}"
        for name, spec in words.specs.items()
        if spec.get("required") and name not in given
    ]


def _add_word(group: Any, name: str, spec: Mapping[str, Any]) -> None:
    """Add the flag of one word."""
    kind = spec.get("type", "str")
    common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": _help(spec)}
    flag = _flag(name)
    if kind == "bool":
        group.add_argument(
            flag, type=_checked(spec), nargs="?", const="on", metavar=SWITCH, **common
        )
        return
    choices = spec.get("choices")
    shape = "|".join(map(str, choices)) if choices else _PLACEHOLDERS.get(kind, "TEXT")
    action = group.add_argument(flag, type=_checked(spec), metavar=shape, **common)
    action.words = choices


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _help(spec: Mapping[str, Any]) -> str:
    """Return a word's description without Ansible's markup, with its default."""
    text = " ".join(str(spec["description"]).split()).removesuffix(".")
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    default = spec.get("default")
    if default is True or default is False:
        text += f" (default: {'on' if default else 'off'})"
    elif default not in (None, "", [], {}, 0):
        text += f" (default: {','.join(default) if isinstance(default, list) else default})"
    return _MARKUP.sub(r"\1", text).replace("%", "%%")


def _checked(spec: Mapping[str, Any]) -> Callable[[str], str]:
    """Return a function that returns the text of a value, or refuses one of a wrong type."""

    def check(text: str) -> str:
        from hearth_controller.inventory.values import misfit  # slow to import

        reason = "" if spec.get("type") == "list" else misfit(text, spec, typed=True)
        if reason:
            raise argparse.ArgumentTypeError(reason)
        return text

    return check


def names_of(words: Words) -> set[str]:
    """Return the names of all words and settings that a playbook takes."""
    if not words.takes_settings:
        return {*words.specs}
    from hearth.config import Settings  # slow to import

    return {*words.specs, *Settings.model_fields}


def typed_words(given: argparse.Namespace, words: Words, paths: Paths) -> dict[str, str]:
    """Return the words that were given, as text for `-e`, with paths for the checkout."""
    known, found = names_of(words), {}
    for name, value in vars(given).items():
        if name not in known:
            continue
        is_path = words.specs.get(name, {}).get("type") == "path"
        found[name] = paths.of_word(name, value, is_path)
    return found
