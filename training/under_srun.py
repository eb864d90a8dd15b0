#!/usr/bin/env python3
"""Run a torchrun program under plain srun, which sets no RANK, MASTER_ADDR and so on.

    srun --nodes 3 python training/under_srun.py train.py --epochs 3

What follows is given to Python as it is, so that `-m package.train` works as well.
"""

from __future__ import annotations

import os
import sys

from hearth.base.entry import print_findings
from hearth.base.errors import LaunchError
from hearth.ranks.slurm import take_ranks


def main() -> int:
    """Become the program as one rank; return 2 if that cannot be."""
    if len(sys.argv) == 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        take_ranks()
    except LaunchError as error:
        return print_findings(error)
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
