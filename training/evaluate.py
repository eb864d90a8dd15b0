#!/usr/bin/env python3
"""Score what a finished run has trained, and the model that it began with, on tasks of lm-eval.

    python training/evaluate.py evening hellaswag,arc_easy
    python training/evaluate.py evening hellaswag --limit 200
    python training/evaluate.py evening ~/tasks/homelab.yaml

RUN is the folder of a run or the name of one in ./runs. The scores go into its metrics, and from
there into its report. The first time lm-eval is installed, aside.
"""

from __future__ import annotations

import argparse
import os
import sys

from hearth.after.finished import afterwards, check_finished
from hearth.after.request import ResultRequest, by_hand
from hearth.base.entry import exit_status
from hearth.config.layout import Layout
from hearth.config.run import find_run


def main() -> int:
    """Score the result; return 0, or 1 if it was not evaluated.

    Raises `HearthError` for an error before it.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="a run: runs/NAME or NAME")
    parser.add_argument("tasks", metavar="TASKS", help="names, or .yaml files, separated by commas")
    parser.add_argument("--limit", metavar="N", help="examples per task; by default all")
    parser.add_argument(
        "--best", action="store_true", help="the weights with the lowest held-out loss (best/)"
    )
    given = parser.parse_args()
    tasks = ",".join(_absolute(task.strip()) for task in given.tasks.split(","))
    request = ResultRequest.typed(eval=tasks, eval_limit=given.limit, best=given.best)
    folder = find_run(given.run, Layout.from_environment().results)
    check_finished(folder, request, print)
    return 0 if afterwards(folder, request, by_hand(given.run), print) else 1


def _absolute(task: str) -> str:
    """Return the whole path of a file; a name as it is."""
    path = os.path.expanduser(task)
    return os.path.abspath(path) if os.path.isfile(path) else task


if __name__ == "__main__":
    sys.exit(exit_status(main))
