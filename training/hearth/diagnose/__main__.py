"""Diagnose a failed run from its nodes' logs: the node that failed first, cause and cure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.base.text import plain
from hearth.diagnose.catalogue import diagnosis, explained
from hearth.diagnose.logs import failure_of


def main(arguments: list[str] | None = None) -> int:
    """Print the diagnosis; return 0 if the cause was found, 1 if not. Exits with 2 without logs."""
    parser = argparse.ArgumentParser(prog="python -m hearth.diagnose", description=__doc__)
    parser.add_argument(
        "log",
        nargs="+",
        type=Path,
        help="runs/RUN/logs/NODE.log of a node",
    )
    given = parser.parse_args(arguments)
    duplicate = len({path.stem for path in given.log}) < len(given.log)
    try:
        logs = {
            str(path) if duplicate else path.stem: path.read_text(
                encoding="utf-8", errors="replace"
            )
            for path in given.log
        }
    except OSError as error:
        parser.error(f"{error.filename}: {error.strerror}")
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
