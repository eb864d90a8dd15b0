"""Measure how a run begins on ten billion tokens in a hundred shards.

    python -m tests.bench.shards

The files are sparse, so that they take no disk and reading them costs no disk's time: only
Hearth's own work counts. Each start is a process of its own; the first reads all files once,
the second finds what was kept. It takes about a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hearth.data.shards.files import bin_header
from tests.bench.command import Bench
from tests.bench.paper import aim, measured

SHARDS, TOKENS, LENGTH = 100, 100_000_000, 1024
STARTS = ("first", "later")

_START = """
import json, sys, time
from pathlib import Path
from hearth.data.shards.load import load_shards
from hearth.plan.row_order import RowOrder

def own_mib():  # without the pages of mapped files, which the system takes back when it needs them
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

folder, length = Path(sys.argv[1]), int(sys.argv[2])
before, started, computing = own_mib(), time.monotonic(), time.process_time()
data = load_shards(
    sorted(folder.glob("*.bin")), [], sequence_length=length, validation_tokens=1,
    vocabulary=50257, cache=folder / "cache", say=lambda _: None,
)
order = RowOrder(len(data.train), 512, 1)
data.train.batch(order.batch(0))
print(json.dumps({
    "seconds": time.monotonic() - started, "processor_seconds": time.process_time() - computing,
    "mib": own_mib() - before, "rows": len(data.train),
}))
"""


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of tests/bench/README.md."""
    starts = figures["starts"]
    lines = [
        f"{figures['tokens'] / 1e9:g} billion tokens in {figures['shards']} files, "
        f"{starts[0]['rows']} rows of {LENGTH}, up to the first 512 rows in their order. "
        f"{measured(figures)}",
        "",
        "| start | seconds | of the processor | memory, MiB |",
        "|---|--:|--:|--:|",
    ]
    for name, start in zip(STARTS, starts, strict=True):
        took, computed = start["seconds"], start["processor_seconds"]
        lines.append(f"| {name} | {took:.1f} | {computed:.1f} | {start['mib']:.0f} |")
    later = starts[1]
    lines += ["", aim("A later start within 5 s", later["seconds"] < 5, f"{later['seconds']:.1f}")]
    return "\n".join(lines)


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Return the figures of both starts."""
    for number in range(SHARDS):
        with (folder / f"fine_{number:06}.bin").open("wb") as file:
            bin_header(TOKENS, np.dtype("<u2")).tofile(file)
            os.truncate(file.fileno(), 1024 + 2 * TOKENS)
    command = [sys.executable, "-c", _START, str(folder), str(LENGTH)]
    starts = [json.loads(subprocess.check_output(command)) for _ in STARTS]
    return {"shards": SHARDS, "tokens": SHARDS * TOKENS, "starts": starts}


if __name__ == "__main__":
    Bench("shards", __doc__, table).run(measure)
