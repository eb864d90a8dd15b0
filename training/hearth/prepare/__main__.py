"""Inspect this node for a run, and change nothing. Prints one line of JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.prepare.look import look


def main() -> int:
    """Inspect this node; return the exit status: 0, or 2 if there are findings."""
    parser = argparse.ArgumentParser(prog="python -m hearth.prepare", description=__doc__)
    parser.add_argument("--run-file", type=Path, required=True, metavar="FILE")
    parser.add_argument("--spec", type=Path, required=True, help="the parts to inspect (JSON)")
    given = parser.parse_args()
    with redirect_stdout(sys.stderr):
        try:
            wanted = json.loads(given.spec.read_text())
            answer = look(given.run_file, wanted, Path(os.environ["HEARTH_WORKSPACE"]))
        except HearthError as error:
            answer = {"facts": {}, "findings": error.findings}
    print(json.dumps(answer))
    return 2 if answer["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
