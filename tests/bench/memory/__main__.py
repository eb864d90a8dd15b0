"""Compare the estimate of memory with the use of a rank, on this computer's CPU.

    .venv/bin/python -m tests.bench.memory

trains models of three sizes for two steps, each in a process of its own, with and without gradient
checkpointing, and once over two ranks that share the weights out (`parallel: fsdp`). It takes some
minutes on two cores and needs 8 GB of memory.
"""

from __future__ import annotations

import platform
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.rank_memory import SIZES, WITHIN, off, taken

from tests.bench.command import Bench
from tests.bench.paper import aim

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


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        "On a CPU, Llamas with random weights, LoRA on all linear layers, fp32, two steps of one "
        "full micro-batch a rank; several share the weights out (`parallel=fsdp`), and the one "
        "that takes most counts. Measured is the peak of resident memory over what the imports "
        f"take ({figures['libc']}). On {figures['date']} on {figures['computer']}; Hearth "
        f"{figures['hearth']}.",
        "",
        "| parameters | ranks | rows × tokens | checkpointing | measured MiB | estimated MiB "
        "| off |",
        "|--:|--:|---|---|--:|--:|--:|",
    ]
    for run in figures["runs"]:
        measured, estimated = (run["peak"] - run["before"]) >> 20, run["estimated"] >> 20
        lines.append(
            f"| {run['parameters'] / 1e6:.0f}M | {run['ranks']} | "
            f"{run['rows']} × {run['length']} | {'yes' if run['checkpointing'] else 'no'} | "
            f"{measured} | {estimated} | {round(100 * off(run)):+d}% |"
        )
    worst = max(abs(off(run)) for run in figures["runs"])
    words = f"Within {WITHIN:.0%} of what is measured"
    return "\n".join([*lines, "", aim(words, worst <= WITHIN, f"at most {worst:.0%}")])


if __name__ == "__main__":
    bench = Bench("memory", __doc__, table)
    bench.option("--only", choices=SIZES, help="one of the sizes")
    bench.run(measure)
