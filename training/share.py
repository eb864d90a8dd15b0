#!/usr/bin/env python3
"""Share what a finished run has trained: push it to the Hub, or copy it to a NAS or a bucket.

    python training/share.py evening --push ada/homelab-qa
    python training/share.py evening --copy-to /mnt/nas/runs
    python training/share.py evening --copy-to s3://bucket/runs

RUN is the folder of a run or the name of one in ./runs. A model card goes with it, written from the
run's settings and metrics. Doing it again replaces what an earlier time has sent.
"""

from __future__ import annotations

import argparse
import sys

from hearth.after.finished import afterwards, check_finished
from hearth.after.request import ResultRequest, by_hand
from hearth.base.entry import exit_status
from hearth.base.errors import ConfigError
from hearth.config.layout import Layout
from hearth.config.run import find_run


def main() -> int:
    """Share the result; return 0, or 1 if something was not done.

    Raises `HearthError` for an error before it.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", metavar="RUN", help="a run: runs/NAME or NAME")
    parser.add_argument("--push", default="", metavar="OWNER/NAME", help="a repository on the Hub")
    parser.add_argument(
        "--private",
        default="on",
        metavar="{on,off}",
        help="off: everybody may read a new repository (default: on)",
    )
    parser.add_argument("--copy-to", default="", metavar="PLACE", help="a folder, or s3://…")
    parser.add_argument(
        "--best", action="store_true", help="the weights with the lowest held-out loss (best/)"
    )
    given = parser.parse_args()
    if not (given.push or given.copy_to):
        raise ConfigError("say where to: --push OWNER/NAME or --copy-to PLACE")
    request = ResultRequest.typed(
        push=given.push, private=given.private, copy_to=given.copy_to, best=given.best
    )
    folder = find_run(given.run, Layout.from_environment().results)
    check_finished(folder, request, print)
    return 0 if afterwards(folder, request, by_hand(given.run), print) else 1


if __name__ == "__main__":
    sys.exit(exit_status(main))
