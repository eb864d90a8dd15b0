"""Time a command as a person and a processor see it."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.lab import run


@dataclass(frozen=True)
class Cost:
    """Seconds on the clock, and seconds of processor time of the controller's own processes."""

    wall: float
    cpu: float


def timed(command: Sequence[str], folder: Path, environment: dict[str, str]) -> Cost:
    """Run `command` in `folder` and return what it cost.

    The processor time is that of the command and all it waited for; the SSH master that outlives
    it is not among them, and neither are the machines, which share the computer.

    Raises `CommandFailed` with the end of its output.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    run(command, folder, environment)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
    return Cost(round(wall, 3), round(cpu, 3))
