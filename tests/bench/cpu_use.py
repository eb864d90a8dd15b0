"""Seconds of a core that the machines of the lab compute, looked up while they train.

A machine with a share of a core is slow by pauses: it gets its share every 20 ms anew. After it has
waited for another one it goes on with a whole share at the speed of a whole core. So by the clock
it is faster than a machine that never waits. Its seconds of a core over its share are not.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.bench.beside import steps_of

_EVERY = 2.0  # seconds


class Sample(NamedTuple):
    """Seconds of a core that the processes of each machine have computed until a time, by pid."""

    at: float
    seconds: dict[str, dict[int, float]]


@contextlib.contextmanager
def sampled(nodes: Sequence[str]) -> Iterator[list[Sample]]:
    """Give a list of samples of these machines, which grows while the block runs."""
    samples: list[Sample] = []
    over = threading.Event()

    def take_sample() -> None:
        while not over.wait(_EVERY):
            samples.append(Sample(time.time(), {node: _computed(node) for node in nodes}))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(take_sample)
        try:
            yield samples
        finally:
            over.set()
    looking.result()


def _computed(node: str) -> dict[int, float]:
    """Return the seconds of a core of the main thread of each process on a machine.

    A rank computes in its main thread. Sending and receiving have threads of their own.
    """
    from hearth_lab import machine, plan

    seconds = {}
    for process in machine.processes(plan.machine_named(node)):
        with contextlib.suppress(OSError):  # it has ended
            schedule = Path(f"/proc/{process}/task/{process}/schedstat").read_text()
            seconds[process] = int(schedule.split()[0]) / 1e9
    return seconds


def _totals(samples: Sequence[Sample], node: str) -> list[float]:
    """Return the seconds of a core at each sample, of processes that have ended as well."""
    latest: dict[int, float] = {}
    totals = []
    for sample in samples:
        latest |= sample.seconds[node]
        totals.append(sum(latest.values()))
    return totals


def seconds_of_a_step(
    samples: Sequence[Sample], record: Sequence[Mapping[str, Any]], skipped: int
) -> dict[str, float]:
    """Return each machine's seconds of a core in a step, the mean over those that are counted.

    `record` are the lines of a run's metrics.jsonl, without the first `skipped` steps.
    Raises ValueError if none is counted, or the samples do not cover them.
    """
    steps = steps_of(record)[skipped:]
    if not steps:
        raise ValueError(f"no steps after the first {skipped}")
    ends = [steps[0].began, steps[-1].ended]
    times = [sample.at for sample in samples]
    if not times or times[0] > ends[0] or times[-1] < ends[1]:
        raise ValueError("the machines were not looked at during all steps")
    found = {}
    for node in samples[0].seconds:
        before, after = np.interp(ends, times, _totals(samples, node))
        found[node] = float(after - before) / len(steps)
    return found
