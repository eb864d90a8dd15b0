"""`hearth status --serve`: the state of the cluster and the report of a run as a live page."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.place import Place

PORT = 8420
LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the live page."""
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
    """Serve the page until Ctrl-C; return the exit status."""
    from hearth_controller.watch.serving import serve  # slow to import

    with suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(serve(place, given.address or LOOPBACK, given.serve, _say))
    print("\nno longer served")
    return EXIT["good"]


def _say(text: str) -> None:
    print(text, flush=True)
