"""Measure how near the estimate of memory comes to what a rank takes, on this computer's CPU.

    .venv/bin/python -m tests.bench.memory

trains models of three sizes for two steps, each in a process of its own, with and without gradient
checkpointing. It writes the raw figures beside itself and the table into docs/benchmarks.md. It
takes a few minutes on two cores and needs 5 GB of memory.
"""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))  # for tests/support

from tests.bench.memory.measure import measure  # noqa: E402
from tests.bench.memory.report import table  # noqa: E402
from tests.bench.memory.sizes import SIZES  # noqa: E402
from tests.bench.paper import circumstances, publish  # noqa: E402

FIGURES = Path(__file__).with_name("figures.json")
CASES = {"small": (4, 512), "middle": (2, 512), "large": (1, 512)}
"""Rows of a micro-batch and tokens of a row, by size."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", choices=SIZES, help="one of the sizes")
    parser.add_argument("--dry", action="store_true", help="print the table, write nothing")
    given = parser.parse_args(arguments)
    runs = []
    with tempfile.TemporaryDirectory(prefix="hearth-bench-") as folder:
        for size in [given.only] if given.only else SIZES:
            for checkpointing in (False, True):
                runs.append(measure(Path(folder), size, *CASES[size], checkpointing))
                print(f"bench: {runs[-1]}", flush=True)
    libc = " ".join(platform.libc_ver())
    figures = circumstances() | {"libc": libc, "runs": runs}
    print(table(figures))
    if not given.dry:
        publish("memory", figures, FIGURES, table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
