"""`hearth status`: also as metrics for Prometheus, and as a live page."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import suppress
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.place import Place
from hearth_controller.cli.play import play_verb, request

PORT = 8420
LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of this verb that no playbook has."""
    parser.add_argument(
        "--prometheus",
        nargs="?",
        const="",
        metavar="FILE.prom",
        help="print metrics for Prometheus, or write them to a file of node_exporter's textfile "
        "collector and end with 0",
    )
    parser.add_argument(
        "--serve",
        nargs="?",
        type=int,
        const=PORT,
        metavar="PORT",
        help=f"serve it as a live page with the report of each run, by default at port {PORT} of "
        "this computer alone; a run that ends meanwhile is brought to runs/",
    )
    parser.add_argument(
        "--address",
        metavar="ADDRESS",
        help="with --serve: an address of this computer that others may open, with a token",
    )


def run(given: argparse.Namespace, place: Place) -> int:
    """Show the status; return the exit status."""
    if given.serve is not None:
        return _serve(given, place)
    if given.address is not None:
        raise HearthError("--address goes with --serve")
    if given.prometheus is None or given.show:
        return play_verb("status", given, place)
    target = _target(given.prometheus, place.folder) if given.prometheus else None
    ended = place.ask(*request("status", given, place))
    if ended.answer is None or not ended.answer.facts:
        print(ended.output.strip(), file=sys.stderr)
        return ended.code
    from hearth_controller.runs.prometheus import exposition

    text = "\n".join(exposition(ended.answer.facts))
    if target is None:
        print(text)
        return ended.code
    try:
        write_whole(target, text + "\n")
    except OSError as error:
        raise HearthError(f"--prometheus: {target} cannot be written: {error.strerror}") from error
    return EXIT["good"]


def _target(typed: str, folder: Path) -> Path:
    """Return the file for metrics. Raises `HearthError` if node_exporter would not read it."""
    target = folder / typed
    if target.suffix != ".prom" or not target.parent.is_dir():
        raise HearthError(
            f"--prometheus: {target} must end with .prom, since node_exporter reads no other "
            "files, and its folder must exist"
        )
    return target


def _serve(given: argparse.Namespace, place: Place) -> int:
    """Serve the live page until Ctrl-C; return the exit status."""
    from hearth_controller.watch.server import serve  # slow to import

    def say(text: str) -> None:
        print(text, flush=True)

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(serve(place, given.address or LOOPBACK, given.serve, say))
    print("\nno longer served")
    return EXIT["good"]
