"""The request and the measurements of a benchmark, and the file that stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass

from hearth.base.errors import LaunchError
from hearth.base.files import write_whole
from hearth.record.story import Story
from hearth.record.windows import Window, totals

RankKind = Literal["GPU", "rank"]
"""The kind of a node's ranks: each has a GPU of its own, or is just a rank."""


@dataclass(frozen=True)
class Configuration:
    """Nodes that train together, in order of rank, or one alone; with `one` a single rank of it."""

    nodes: tuple[str, ...]
    one: RankKind | None = None


@dataclass(frozen=True)
class Timing:
    """Timing of the counted steps of one run.

    Attributes:
        steps: Number of counted steps.
        tokens: Tokens of these steps.
        seconds: Duration of the steps, without the time between them.
        whole_seconds: Duration of the run's play.
        versions: Versions of Python and its packages on rank 0's node.
        joules: Energy of the counted steps, None unless every node measures its own.
    """

    steps: int
    tokens: float
    seconds: float
    whole_seconds: float
    versions: Mapping[str, str]
    joules: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all nodes together."""
        return self.tokens / self.seconds

    @classmethod
    def from_story(cls, story: Story, warm_up: int, whole_seconds: float) -> Timing:
        """Return the timing of the steps of a run after the first `warm_up`.

        The first steps are not counted: they compile kernels, reserve memory and adjust the split.

        Raises:
            LaunchError: The run ended before its last step, was without a node for a while, or no
                step is left to count.
        """
        if story.step < story.steps:
            raise LaunchError(f"it ended after {story.step} of {story.steps} steps")
        if story.absences:
            raise LaunchError(f"{story.absences[0].node} {story.absences[0].text}")
        counted = [each for each in story.windows if each.step - each.steps >= warm_up]
        if not counted:
            raise LaunchError(f"no step after the first {warm_up} is on record")
        return cls(
            steps=sum(each.steps for each in counted),
            tokens=sum(part.tokens for part, _ in totals(counted).values()),
            seconds=sum(each.seconds for each in counted),
            whole_seconds=whole_seconds,
            versions=story.facts.versions,
            joules=_joules(counted),
        )


@dataclass(frozen=True)
class MeasuredRun:
    """One run of these nodes, or of `one` rank: its timing, or why it failed.

    `turn` counts the repeats from 0.
    """

    nodes: tuple[str, ...]
    turn: int
    timing: Timing | None = None
    failure: str | None = None
    one: RankKind | None = None

    @property
    def configuration(self) -> Configuration:
        """The configuration that ran."""
        return Configuration(self.nodes, self.one)


@dataclass(frozen=True)
class BenchmarkRequest:
    """The request for a benchmark.

    Attributes:
        settings: Settings of the runs that a person can choose, and the data file's checksum.
        warm_up: First steps of each run, which are not counted.
        steps: Counted steps after the warm-up.
        repeat: Runs of each configuration.
    """

    model: str
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]
    warm_up: int
    steps: int
    repeat: int


def _joules(windows: Iterable[Window]) -> float | None:
    """Return the energy of all nodes in these windows, None if one is not measured."""
    found = [part.joules for each in windows for part in each.parts.values()]
    return None if None in found else sum(found)


@dataclass(frozen=True)
class Ranks:
    """The ranks of a node: their number, and their kind."""

    count: int
    kind: RankKind


@dataclass(frozen=True)
class Circumstances:
    """Facts that can change between benchmarks: Hearth, and driver, kernel and ranks by node."""

    hearth: str
    nodes: Mapping[str, Mapping[str, str]]
    ranks: Mapping[str, Ranks] = field(default_factory=dict)


@dataclass
class Benchmark:
    """One benchmark, finished or under way.

    Attributes:
        name: Date and model; its files are named after it.
        began: Start time (ISO 8601).
        attempts: Number of started runs, which is part of their names.
        last_run: Name of the run started last; after an interruption it may still be active.
    """

    name: str
    began: str
    request: BenchmarkRequest
    circumstances: Circumstances
    runs: list[MeasuredRun] = field(default_factory=list)
    attempts: int = 0
    last_run: str | None = None

    def write(self, path: Path) -> None:
        """Write this to a file. Raises `OSError` on failure."""
        write_whole(path, _RECORD.dump_json(self, indent=1).decode() + "\n")

    @classmethod
    def read(cls, path: Path) -> Benchmark | None:
        """Read a benchmark from a file; None if it is missing or of another version."""
        with suppress(OSError, ValueError):
            return _RECORD.validate_json(path.read_bytes())
        return None


_RECORD = TypeAdapter(Benchmark)
