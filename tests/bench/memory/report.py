"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.paper import aim

WITHIN = 0.15


def off(run: Mapping[str, Any]) -> float:
    """Return the estimate's relative error; negative where it is below the measurement."""
    return run["estimated"] / (run["peak"] - run["before"]) - 1


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
