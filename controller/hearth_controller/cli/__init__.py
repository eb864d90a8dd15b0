"""The `hearth` command: a thin way to the playbooks, from any folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hearth.base.entry import reader_has_ended
from hearth.base.errors import HearthError, did_you_mean
from hearth_controller.base.paths import as_typed
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli import completion
from hearth_controller.cli.parser import first_screen, parse, refuse, split_verb
from hearth_controller.cli.place import REPOSITORY, find_place
from hearth_controller.cli.play import play_verb
from hearth_controller.cli.update import stale
from hearth_controller.cli.verbs import VERBS
from hearth_controller.cli.words import read_words

THIS_COMPUTER = "inventory/local, this computer alone"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (by default this process's); return the exit status."""
    completion.complete()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:  # here, and not as Python ends, a reader that has ended is noticed
            sys.stdout.flush()
    except HearthError as error:
        print(*(f"hearth: {finding}" for finding in error.findings), sep="\n", file=sys.stderr)
        return EXIT["refused"]
    except BrokenPipeError:
        if not reader_has_ended():
            raise
        return EXIT["good"]


def _run(arguments: list[str]) -> int:
    name, rest = split_verb(arguments)
    if name == "completion":
        print(completion.script(rest))
        return EXIT["good"]
    table = read_words(REPOSITORY)
    if not name:
        inventory = find_place().inventory
        print(first_screen(table, as_typed(inventory) if inventory else THIS_COMPUTER))
        return EXIT["good"]
    if name not in VERBS:
        refuse("hearth", f"there is no verb {name}{did_you_mean(name, VERBS)}")
    verb = VERBS[name]
    given = parse(verb, table, rest)
    if line := stale(REPOSITORY):
        print(line, file=sys.stderr)
    place = find_place(given.inventory)
    return verb.load().run(given, place) if verb.module else play_verb(name, given, place)
