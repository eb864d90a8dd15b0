#!/usr/bin/env python3
"""Merge a run's adapter into the model that it was trained on: one plain model folder.

    python training/merge.py runs/evening --to models/evening

The folder loads with Transformers alone. It takes as much disk as the base model, and appears only
when complete. Memory holds one tensor at a time, so the model may be larger than memory. Weights
are rounded to the precision of the base model, mostly bf16; the adapter stays unchanged. After
training in 4 bits the base is the model in 16 bits.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.config.layout import Layout


def main() -> int:
    """Run the command line; return the exit status: 0, or 2 if there is nothing to merge."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run: runs/NAME")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--best",
        action="store_true",
        help="merge the adapter with the lowest held-out loss (best/)",
    )
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run Python code that comes with the base model; read it first",
    )
    given = parser.parse_args()
    # Imported late, so that --help is answered soon and the libraries' warnings stay hidden.
    from hearth.base.quiet import hush

    hush()
    from hearth.model.merge import merge_run

    try:
        models = Layout.from_environment().models
        merge_run(
            given.run,
            given.to.resolve(),
            models,
            print,
            best=given.best,
            trust_remote_code=given.trust_remote_code,
        )
    except HearthError as error:
        for finding in error.findings:
            print(f"hearth: error: {finding}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
