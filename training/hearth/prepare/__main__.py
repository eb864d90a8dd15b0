"""Prepare this node for a run: check its requirements, fetch model and data into its caches."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.imports import loading
from hearth.config import read_run
from hearth.config.layout import Layout


def main() -> int:
    """Prepare this node for the run in --run-file and print the outcome as one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m hearth.prepare", description=__doc__)
    parser.add_argument("--run-file", type=Path, required=True, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="fetch nothing, only look")
    given = parser.parse_args()
    with loading():
        from hearth.base.quiet import hush
        from hearth.prepare.facts import prepared_facts
        from hearth.prepare.node import check

    hush()
    outcome: dict[str, Any] = {"ok": True, "findings": [], "facts": {}}
    with redirect_stdout(sys.stderr):
        try:
            run, layout = read_run(given.run_file), Layout.from_environment()
            if given.check:
                check(run, layout)
            else:
                outcome["facts"] = prepared_facts(run, layout)
        except HearthError as error:
            outcome |= {"ok": False, "findings": error.findings}
    print(json.dumps(outcome))
    return 0 if outcome["ok"] else 2


if __name__ == "__main__":
    sys.exit(main())
