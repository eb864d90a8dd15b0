"""The commands of a node that the play calls: each prints one JSON object."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError

Verb = Callable[[Path, dict[str, Any]], Mapping[str, Any]]
"""Takes the path of the run file and the spec; returns `facts`, `findings` or both."""


def run_verb(verbs: Mapping[str, Verb]) -> int:
    """Run the verb on the command line, print its answer and return the exit status.

    The status is 0, or 2 if there are findings. What a verb prints goes to standard error.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=verbs)
    parser.add_argument("--run-file", type=Path, metavar="FILE")
    parser.add_argument("--spec", type=Path, metavar="FILE", help="what to do (JSON)")
    given = parser.parse_args()
    answer: dict[str, Any] = {"facts": {}, "findings": []}
    with redirect_stdout(sys.stderr):
        try:
            spec = json.loads(given.spec.read_text()) if given.spec else {}
            answer |= verbs[given.verb](given.run_file, spec)
        except HearthError as error:
            answer["findings"] = error.findings
    print(json.dumps(answer))
    return 2 if answer["findings"] else 0
