"""Compare the estimate of memory with the use of a rank, on this computer's CPU.

    .venv/bin/python -m tests.bench.memory

trains models of three sizes for two steps, each in a process of its own, with and without gradient
checkpointing, and once over two ranks that share the weights out (`parallel: fsdp`). It takes some
minutes on two cores and needs 8 GB of memory.
"""

from __future__ import annotations

import platform
from argparse import Namespace
from pathlib import Path
from typing import Any

from tests.bench.command import Bench
from tests.bench.memory.measure import taken
from tests.bench.memory.report import table
from tests.bench.memory.sizes import SIZES

LENGTH = 512
CASES = {"small": (4, False), "middle": (2, False), "large": (1, True)}
"""By size, the rows of a micro-batch, and whether ranks that share weights use checkpointing."""


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    runs = []
    for size in [given.only] if given.only else SIZES:
        rows, shared = CASES[size]
        for checkpointing, ranks in ((False, 1), (True, 1), (shared, 2)):
            runs.append(taken(folder, size, rows, LENGTH, checkpointing, ranks))
            print(f"bench: {runs[-1]}", flush=True)
    return {"libc": " ".join(platform.libc_ver()), "runs": runs}


if __name__ == "__main__":
    bench = Bench("memory", __doc__, table)
    bench.option("--only", choices=SIZES, help="one of the sizes")
    bench.run(measure)
