"""`hearth watch`: a run live in this terminal."""

from __future__ import annotations

import argparse
import sys

from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.place import Place


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the run to watch."""
    parser.add_argument(
        "run", nargs="?", default="", metavar="RUN", help="name of the run; by default the newest"
    )


def run(given: argparse.Namespace, place: Place) -> int:
    """Show the run until the user leaves; return the exit status."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return place.play("attach", {"run": given.run} if given.run else {})
    from hearth_controller.watch.app import WatchApp  # slow to import

    app = WatchApp(place, given.run)
    if text := app.run():
        print(text, file=sys.stderr if app.return_code else sys.stdout)
    return EXIT["broken"] if app.return_code is None else app.return_code
