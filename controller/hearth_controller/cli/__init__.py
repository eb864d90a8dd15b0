"""The `hearth` command: a thin way to the playbooks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from hearth_controller.cli.place import find_place
from hearth_controller.cli.verbs import GROUPS, VERBS, module_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (by default this process's); return the exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    typed = next((word for word in arguments if word in VERBS), None)
    parser = argparse.ArgumentParser(prog="hearth", allow_abbrev=False)
    parser.add_argument("-i", "--inventory", metavar="FOLDER")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for group in GROUPS.values():
        for verb in group:
            of_verb = verbs.add_parser(verb.name, help=verb.about, allow_abbrev=False)
            of_verb.add_argument("-i", "--inventory", metavar="FOLDER", default=argparse.SUPPRESS)
            if verb.name != typed:
                continue
            if verb.module:
                module_of(verb).add_arguments(of_verb)
            else:
                of_verb.add_argument("--show", action="store_true")
    given = parser.parse_args(arguments)
    verb = VERBS[given.verb]
    place = find_place(given.inventory)
    if verb.module:
        return module_of(verb).run(given, place)
    if given.show:
        print(place.shown(place.command(verb.playbook, {})))
        return 0
    return place.play(verb.playbook, {})
