"""Diagnose a failed run from its nodes' logs: the node that failed first, cause and cure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.base.text import plain
from hearth.diagnose.catalogue import diagnosis, explained
from hearth.diagnose.listing import page
from hearth.diagnose.logs import failure_of


def main(arguments: list[str] | None = None) -> int:
    """Print the diagnosis; return 0 if the cause was found, 1 if not. Exits with 2 without logs."""
    parser = argparse.ArgumentParser(prog="python -m hearth.diagnose", description=__doc__)
    parser.add_argument("log", nargs="*", type=Path, help="runs/RUN/logs/NODE.log of a node")
    parser.add_argument(
        "--list",
        nargs="?",
        const="",
        metavar="WORD",
        help="print the known errors with cause and cure instead, those with WORD or all",
    )
    given = parser.parse_args(arguments)
    if given.list is not None:
        known = page(given.list)
        print(known or f"no known error contains {given.list!r}")
        return 0 if known else 1
    if not given.log:
        parser.error("name the log files, or ask for the known errors with --list")
    return _diagnose(_read(parser, given.log))


def _read(parser: argparse.ArgumentParser, paths: list[Path]) -> dict[str, str]:
    """Return the logs by the file's name, or by its path where two have one name."""
    duplicate = len({path.stem for path in paths}) < len(paths)
    try:
        return {
            str(path) if duplicate else path.stem: path.read_text(
                encoding="utf-8", errors="replace"
            )
            for path in paths
        }
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")


def _diagnose(logs: dict[str, str]) -> int:
    """Print the first failure in the logs with its cause; return the exit status."""
    failure = failure_of(logs)
    if failure is None:
        print("no error in these logs")
        return 1
    found = None if failure.has_cure else diagnosis(failure.message, logs.get(failure.node, ""))
    print(plain(f"{failure.node}: {failure.message}"))
    if not failure.has_cure:
        print(*(f"    {line}" for line in explained(found)), sep="\n")
    return 0 if found or failure.has_cure else 1


if __name__ == "__main__":
    sys.exit(main())
