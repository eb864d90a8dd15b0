"""A verb that is a playbook: play it, show how to play it, or print its answer."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hearth.base.text import folded, plain
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.parser import ansible_options
from hearth_controller.cli.paths import Paths
from hearth_controller.cli.place import INTERRUPTED, Place
from hearth_controller.cli.verbs import VERBS
from hearth_controller.cli.words import read_words, typed_words


def request(
    name: str, given: argparse.Namespace, place: Place
) -> tuple[str, dict[str, str], list[str]]:
    """Return the playbook of a verb, its words and the options of ansible-playbook."""
    words = read_words(place.repository)[name]
    typed = typed_words(given, words, Paths(place.folder, place.repository))
    return name, typed, [*ansible_options(given), *given.rest]


@contextmanager
def _patience(shown: bool) -> Iterator[None]:
    """Say on a terminal that it takes a while, until the answer is there."""
    shown = shown and sys.stderr.isatty()
    if shown:
        print("asking the nodes …", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\x1b[K", end="", file=sys.stderr, flush=True)


def play_verb(name: str, given: argparse.Namespace, place: Place) -> int:
    """Do what `given` asks of a verb, and return the exit status."""
    asked = request(name, given, place)
    if given.show:
        print(place.shown(*asked))
        return EXIT["good"]
    quiet = VERBS[name].quiet and not given.verbose
    if not quiet and not given.json:
        return place.play(*asked)
    with _patience(quiet):
        ended = place.ask(*asked, captured=quiet)
    if given.json:
        print(ended.json())
    elif ended.answer and ended.answer.text:
        text = plain(ended.answer.text)
        if sys.stdout.isatty():
            text = folded(text, shutil.get_terminal_size().columns)
        print(text)
    if quiet and ended.failed:
        interrupted = ended.code == INTERRUPTED
        print("interrupted" if interrupted else ended.output.strip(), file=sys.stderr)
    return ended.code
