"""The request and the measurements of a benchmark, and the file that stores them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hearth.base.files import write_whole
from hearth.config import Settings

Kind = Literal["alone", "pair", "together"]


@dataclass(frozen=True)
class Configuration:
    """Nodes that train together, in order of rank."""

    kind: Kind
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Took:
    """Timing of the counted steps of one run.

    Attributes:
        steps: Number of counted steps.
        tokens: Tokens of these steps, and `parts` by node.
        seconds: Duration of the steps, without the time between them.
        whole_seconds: Duration of the run's play.
        versions: Versions of Python and its packages on rank 0's node.
    """

    steps: int
    tokens: float
    seconds: float
    whole_seconds: float
    parts: Mapping[str, float]
    versions: Mapping[str, str]

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all nodes together."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Ran:
    """One run: its timing, or why it failed. `turn` counts the repeats from 0."""

    configuration: Configuration
    turn: int
    took: Took | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Request:
    """The request for a benchmark.

    Attributes:
        settings: Settings of the runs that a person can choose, and the data file's checksum.
        warm_up: First steps of each run, which are not counted.
        steps: Counted steps after the warm-up.
        repeat: Runs of each configuration.
        pairs: Whether each pair of nodes is measured too.
    """

    model: str
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]
    warm_up: int
    steps: int
    repeat: int
    pairs: bool

    def like(self, other: Request) -> bool:
        """Return whether both requests are for the same work on the same nodes.

        The requests may come from different versions of Hearth: a missing setting counts as its
        default, and a removed one is ignored.
        """
        count = {"repeat": self.repeat, "pairs": self.pairs, "settings": _whole(other.settings)}
        return dataclasses.replace(other, **count) == dataclasses.replace(
            self, settings=_whole(self.settings)
        )


def _whole(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with defaults for missing ones and without unknown ones."""
    defaults = Settings.model_construct().model_dump(mode="json")
    known = defaults | dict(settings)
    return {name: known[name] for name in (*defaults, "dataset_sha256") if name in known}


@dataclass(frozen=True)
class Circumstances:
    """Versions that can change between benchmarks: Hearth, and driver and kernel by node."""

    hearth: str
    nodes: Mapping[str, Mapping[str, str]]


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
    asked: Request
    circumstances: Circumstances
    runs: list[Ran] = field(default_factory=list)
    attempts: int = 0
    last_run: str | None = None

    def write(self, path: Path) -> None:
        """Write this to a file. Raises `OSError` on failure."""
        write_whole(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Benchmark | None:
        """Read a benchmark from a file; None if it is missing or of another version."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            asked = kept["asked"] | {"nodes": tuple(kept["asked"]["nodes"])}
            return cls(
                **kept
                | {
                    "asked": Request(**asked),
                    "circumstances": Circumstances(**kept["circumstances"]),
                    "runs": [_ran(each) for each in kept["runs"]],
                }
            )
        return None


def _ran(kept: Mapping[str, Any]) -> Ran:
    """Return a run from its JSON object."""
    configuration = Configuration(
        kept["configuration"]["kind"], tuple(kept["configuration"]["nodes"])
    )
    took = Took(**kept["took"]) if kept["took"] else None
    return Ran(configuration, kept["turn"], took, kept["failure"])


def finished(folder: Path) -> list[Benchmark]:
    """Return the finished benchmarks in a folder, oldest first."""
    found = [Benchmark.read(path) for path in folder.glob("*.json")]
    return sorted((each for each in found if each), key=lambda each: each.began)
