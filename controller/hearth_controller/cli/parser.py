"""The command line of `hearth`: its parser and its help. Nothing is run here."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.verbs import GROUPS, Verb
from hearth_controller.cli.words import Words, add_words, missing

_ABOUT = "Hearth turns the computers around the house into one training cluster."
_WIDEST = 100
"""Columns of help at most: longer lines are hard to read."""

_OF_PLAYS = {
    "--help-all": "show every flag",
    "--show": "print the command that plays it, and do nothing",
    "--json": "print the answer as JSON, and all else to the standard error",
}
"""Flags of every verb that plays a playbook."""

_ANSIBLE: tuple[tuple[str, str, Mapping[str, str], str], ...] = (
    ("-k", "--ask-pass", {"action": "store_true"}, "ask for the password of SSH"),
    ("-K", "--ask-become-pass", {"action": "store_true"}, "ask for the password of sudo"),
    ("--check", "-C", {"action": "store_true"}, "show what would change, and change nothing"),
    ("--diff", "-D", {"action": "store_true"}, "show the changes of files"),
    ("--tags", "-t", {"metavar": "A,B"}, "only these stages"),
    ("--limit", "-l", {"metavar": "A,B"}, "only these machines"),
    ("-e", "--extra-vars", {"metavar": "NAME=VALUE", "action": "append"}, "any other variable"),
    ("-v", "--verbose", {"action": "count"}, "show more; -vvv shows what SSH says"),
)
"""Options of ansible-playbook that are flags here, too; others may follow `--`."""

_FORMS = ("on", "off", "true", "false", "yes", "no")
"""Values of a switch."""


class Parser(argparse.ArgumentParser):
    """A parser that answers a mistake in two lines, with the exit status of wrong input."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit."""
        refuse(self.prog, message)


def refuse(command: str, *findings: str) -> NoReturn:
    """Print the error of a command line, and exit."""
    lines = [f"{command}: {finding}" for finding in findings]
    print(*lines, f"`{command} --help` shows what there is", sep="\n", file=sys.stderr)
    sys.exit(EXIT["refused"])


def first_screen(table: Mapping[str, Words], inventory: str) -> str:
    """Return the screen of `hearth` alone: all verbs, and the `inventory` in use."""
    lines = [_ABOUT, "", "usage: hearth VERB [flags]", ""]
    for heading, verbs in GROUPS.items():
        lines.append(heading)
        lines += [f"  {verb.name:11} {about(verb, table)}" for verb in verbs]
    return "\n".join(
        [
            *lines,
            "",
            "hearth VERB --help                  its flags",
            "hearth VERB --show                  the playbook that it plays",
            'eval "$(hearth completion bash)"    completes verbs and flags; also zsh, fish',
            "",
            f"The inventory in use is {inventory}.",
        ]
    )


def split_verb(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the verb, '' where help is wanted, and the other arguments; `-i` may come first."""
    rest = list(arguments)
    before = rest[:2] if rest[:1] in (["-i"], ["--inventory"]) else []
    rest = rest[len(before) :]
    if rest[:1] == ["help"]:  # `hearth help train`
        rest = [*rest[1:2], "--help"]
    if rest[:1] in ([], ["-h"], ["--help"]):
        return "", []
    return rest[0], [*before, *rest[1:]]


def about(verb: Verb, table: Mapping[str, Words]) -> str:
    """Return a verb's line of help."""
    text = verb.about or table[verb.name].about
    return text[0].lower() + text[1:]


def build(verb: Verb, table: Mapping[str, Words], whole_help: bool = False) -> Parser:
    """Return the parser of one verb; with `whole_help` its help shows every flag."""
    name = f"hearth {verb.name}"
    shown = verb.shown or verb.positional.upper()
    positional = f"[{shown}] " if shown else ""
    parser = Parser(
        prog=name,
        usage=f"{name} {positional}[flags]",
        description=about(verb, table),
        allow_abbrev=False,
        add_help=False,
        formatter_class=_Formatter,
    )
    # pylint: disable=protected-access
    parser._positionals.title, parser._optionals.title = "words", "flags"
    words = table.get(verb.name)
    if words:
        add_words(parser, words, verb.positional, verb.shown)
    if verb.module:
        verb.load().add_arguments(parser)
    if words:
        ansible = parser.add_argument_group("Ansible")
        for *flags, kind, what in _ANSIBLE:
            ansible.add_argument(*flags, **kind, help=what)
    everywhere = parser.add_argument_group("everywhere")
    everywhere.add_argument("-i", "--inventory", metavar="FOLDER", help="work with this inventory")
    for flag, what in _OF_PLAYS.items() if words else ():
        everywhere.add_argument(flag, action="store_true", help=what)
    everywhere.add_argument("-h", "--help", action="help", help="show this help")
    if words and not whole_help:
        shown = [*parser._action_groups[:-2]]
        if verb.first:
            flags = {action.dest: action for action in parser._actions}  # the positional is last
            short = parser.add_argument_group("flags")
            short._group_actions = [flags[name] for name in verb.first]
            shown = [short]
        parser._action_groups = [*shown, *([ansible] if verb.asks else []), everywhere]
    return parser


def parse(verb: Verb, table: Mapping[str, Words], arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a verb; `rest` goes to ansible-playbook as it is.

    Prints help or an error, and exits, where the command line asks for no play.
    """
    words = table.get(verb.name)
    own, rest = _divided(arguments, "--") if words else (list(arguments), [])
    if words and "--help-all" in own:
        build(verb, table, whole_help=True).print_help()
        sys.exit()
    parser = build(verb, table)
    given, unknown = parser.parse_known_args(switched(own, parser))
    if unknown:
        from hearth.config.cli import unknown_options  # slow to import

        if unknown[0].startswith("-") or (words and words.takes_settings):
            refuse(parser.prog, *unknown_options(parser, unknown))
        refuse(parser.prog, f"{unknown[0]} is a word too many")
    if words and (lacks := missing(given, words)):
        refuse(parser.prog, *lacks)
    given.rest = rest
    return given


def switched(arguments: Iterable[str], parser: argparse.ArgumentParser) -> list[str]:
    """Return arguments with the value of each switch: `--wait` as `--wait=on`.

    Otherwise a word behind it, such as the name of a run, would be its value. `--no-wait` is
    `--wait=off`, and an underscore in a flag's name a hyphen: playbooks write `max_steps`.
    """
    values = {
        action.option_strings[0]: {*_FORMS, *(getattr(action, "words", None) or ())}
        for action in parser._actions
        if action.const == "on"
    }
    found: list[str] = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if flag.startswith("--") and " " not in flag:  # else it is a value, such as a script's
            flag = flag.replace("_", "-")
        off, before = flag.replace("--no-", "--", 1), found[-1] if found else ""
        if flag in values and not equals:
            found.append(f"{flag}=on")
        elif flag not in values and off in values and not equals:
            found.append(f"{off}=off")
        elif argument in values.get(before.removesuffix("=on"), ()):
            found[-1] = f"{before.removesuffix('=on')}={argument}"
        else:
            found.append(f"{flag}{equals}{value}")
    return found


def ansible_options(given: argparse.Namespace) -> list[str]:
    """Return the options for ansible-playbook among the parsed arguments."""
    options: list[str] = []
    for flag, other, kind, _ in _ANSIBLE:
        name = max(flag, other, key=len).strip("-").replace("-", "_")
        value = getattr(given, name)
        if kind.get("action") == "append":
            options += [word for each in value or () for word in (flag, each)]
        elif kind.get("action") == "count":
            options += [f"-{'v' * value}"] if value else []
        elif value:
            options += [flag] if value is True else [flag, value]
    return options


def _divided(arguments: Sequence[str], mark: str) -> tuple[list[str], list[str]]:
    """Return the arguments before and behind a mark."""
    words = list(arguments)
    place = words.index(mark) if mark in words else len(words)
    return words[:place], words[place + 1 :]


class _Formatter(argparse.HelpFormatter):
    """Help that fits the terminal, with the placeholder of a value once a line."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, _WIDEST)
        super().__init__(prog, max_help_position=26, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"
