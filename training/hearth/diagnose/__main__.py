"""Diagnose a failed run from its nodes' logs: the node that failed first, cause and cure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.diagnose.catalogue import diagnosis, explained
from hearth.diagnose.logs import failure_of
from hearth.diagnose.page import markdown


def main(arguments: list[str] | None = None) -> int:
    """Print the diagnosis; return 0 if the cause was found, 1 if not. Exits with 2 without logs."""
    parser = argparse.ArgumentParser(prog="python -m hearth.diagnose", description=__doc__)
    parser.add_argument("log", nargs="*", type=Path, help="log of a node; its name is the node's")
    parser.add_argument("--markdown", action="store_true", help="print all that is known as a page")
    given = parser.parse_args(arguments)
    if given.markdown:
        print(markdown(), end="")
        return 0
    if not given.log:
        parser.error("name a log file or several, such as runs/RUN/logs/*.log")
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
    print(f"{failure.node}: {failure.message}")
    if not failure.has_cure:
        print(*(f"    {line}" for line in explained(found)), sep="\n")
    return 0 if found or failure.has_cure else 1


if __name__ == "__main__":
    sys.exit(main())
