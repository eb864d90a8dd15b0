"""`hearth chat`: at a terminal, talk to a run instead of reading how to."""

from __future__ import annotations

import argparse
import os
import sys

from hearth_controller.cli.place import Place
from hearth_controller.cli.play import play_verb, request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no flags: those of the playbook are all."""


def run(given: argparse.Namespace, place: Place) -> int:
    """Open a chat, or say how; return the exit status."""
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not terminal or given.show or given.json or given.check or "serve" in given:
        return play_verb("chat", given, place)
    ended = place.ask(*request("chat", given, place))
    command = ended.answer and ended.answer.facts.get("command")
    if not command:
        print(ended.output.strip(), file=sys.stderr)
        return ended.code
    os.execvp("sh", ["sh", "-c", command])
