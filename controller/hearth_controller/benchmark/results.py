"""What a benchmark was asked for, what it has measured, and the file that keeps both."""

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
    """Nodes that train with each other, in order of rank."""

    kind: Kind
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Took:
    """What the counted steps of one run took.

    Attributes:
        steps: how many they were.
        tokens: of all of them, and `parts` by node.
        seconds: without what lies between steps.
        whole_seconds: of the run from its play's beginning to its end.
        versions: of Python and its packages on rank 0's node.
    """

    steps: int
    tokens: float
    seconds: float
    whole_seconds: float
    parts: Mapping[str, float]
    versions: Mapping[str, str]

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of all nodes together."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Ran:
    """One run: what it took, or why it failed. `turn` counts the repeats from 0."""

    configuration: Configuration
    turn: int
    took: Took | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Asked:
    """What is to be measured.

    Attributes:
        settings: those of the runs that a person can choose, and the checksum of the data file.
        warm_up: first steps of each run that are not counted.
        steps: the steps after them, which are.
        repeat: runs of each configuration.
        pairs: whether every two nodes are measured too.
    """

    model: str
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]
    warm_up: int
    steps: int
    repeat: int
    pairs: bool

    def like(self, other: Asked) -> bool:
        """Return whether the same work was asked of the same nodes, however often.

        A setting that one of the two lacks, as it is of another version of Hearth, counts as its
        default there; one that is no more counts for nothing.
        """
        count = {"repeat": self.repeat, "pairs": self.pairs, "settings": _whole(other.settings)}
        return dataclasses.replace(other, **count) == dataclasses.replace(
            self, settings=_whole(self.settings)
        )


def _whole(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of those that are not there, without what is none."""
    defaults = Settings.model_construct().model_dump(mode="json")
    known = defaults | dict(settings)
    return {name: known[name] for name in (*defaults, "dataset_sha256") if name in known}


@dataclass(frozen=True)
class Circumstances:
    """What can change from one benchmark to the next: Hearth, and driver and kernel by node."""

    hearth: str
    nodes: Mapping[str, Mapping[str, str]]


@dataclass
class Benchmark:
    """One benchmark, finished or under way.

    Attributes:
        name: its date and model, by which its files go.
        began: ISO 8601.
        attempts: runs that were begun, by which they are named.
        last_run: name of the run that was begun last; where it was interrupted, perhaps under way.
    """

    name: str
    began: str
    asked: Asked
    circumstances: Circumstances
    runs: list[Ran] = field(default_factory=list)
    attempts: int = 0
    last_run: str | None = None

    def write(self, path: Path) -> None:
        """Write this to a file. Raises `OSError` if that cannot be."""
        write_whole(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Benchmark | None:
        """Return what was written to a file; None where it is missing or of another version."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            asked = kept["asked"] | {"nodes": tuple(kept["asked"]["nodes"])}
            return cls(
                **kept
                | {
                    "asked": Asked(**asked),
                    "circumstances": Circumstances(**kept["circumstances"]),
                    "runs": [_ran(each) for each in kept["runs"]],
                }
            )
        return None


def _ran(kept: Mapping[str, Any]) -> Ran:
    """Return a run as it was written."""
    configuration = Configuration(
        kept["configuration"]["kind"], tuple(kept["configuration"]["nodes"])
    )
    took = Took(**kept["took"]) if kept["took"] else None
    return Ran(configuration, kept["turn"], took, kept["failure"])


def finished(folder: Path) -> list[Benchmark]:
    """Return the finished benchmarks in a folder, the oldest first."""
    found = [Benchmark.read(path) for path in folder.glob("*.json")]
    return sorted((each for each in found if each), key=lambda each: each.began)
