"""From raw figures to tests/bench/README.md."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.lab import ROOT

DOCUMENT = ROOT / "tests" / "bench" / "README.md"


def circumstances() -> dict[str, str]:
    """Return when, where and of what the figures are."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    cores = len(os.sched_getaffinity(0))
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "computer": f"{cores} cores of {names[0] if names else platform.machine()}",
        "hearth": commit or "without git",
    }


def measured(figures: Mapping[str, Any]) -> str:
    """Return the sentence on the circumstances of the figures."""
    return f"Measured on {figures['date']} on {figures['computer']}; Hearth {figures['hearth']}."


def aim(words: str, is_met: bool, found: str) -> str:
    """Return the line on an aim and on the figure found."""
    return f"- {words}: {'met' if is_met else '**not met**'} ({found})."


def median_of(runs: Iterable[Mapping[str, Any]], what: str = "tokens_per_second") -> float:
    """Return the median of a figure over repeats."""
    return median(run[what] for run in runs)


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the least and the most of a figure over repeats."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def put(text: str, name: str, section: str) -> str:
    """Return the document with `section` between the marks of the bench called `name`.

    They are appended if they lack.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    if not found:
        return f"{text.rstrip()}\n\n{begin}\n{section}\n{end}\n"
    return f"{before}{begin}\n{section}\n{end}{rest.partition(end)[2]}"


def publish(name: str, figures: Mapping[str, Any], path: Path, section: str) -> None:
    """Write the raw figures to `path`, and their table into tests/bench/README.md."""
    path.write_text(json.dumps(figures, indent=1) + "\n")
    DOCUMENT.write_text(put(DOCUMENT.read_text(), name, section))
