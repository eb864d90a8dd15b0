"""From a run's folder to what is known of the run; whatever is missing or torn is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from hearth.base.errors import ConfigError
from hearth.config import Run, read_run
from hearth_controller.runs.outcome import Ends, failures, state_of
from hearth_controller.runs.story import Story, read_lines

_FILES = ("run.yml", "metrics.jsonl", "adapter", "model", "best", "logs")


@dataclass(frozen=True)
class Known:
    """What the folder of a run tells.

    Attributes:
        run: settings and their origins, None if `run.yml` is missing or cannot be read.
        hearth: the version of Hearth that wrote `run.yml`.
        ends: how it ended on each node, None for a run that was started by hand.
        files: those of the run's files that are there.
        failures: by node, why it failed there and what helps.
        lacks: what could not be read, as sentences.
    """

    name: str
    story: Story
    run: Run | None = None
    hearth: str | None = None
    ends: Ends | None = None
    files: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)

    @property
    def state(self) -> str:
        """`finished`, `stopped`, `failed`, `lost`, or `without an end` if none is on record."""
        if self.ends:
            return state_of(self.ends.by_node)
        return self.story.state or "without an end"


def read(folder: Path) -> Known:
    """Return what the folder of a run tells.

    Raises `ConfigError` if there is no such folder, or nothing of a run in it.
    """
    files = [name for name in _FILES if (folder / name).exists()]
    ends = Ends.read(folder)
    if not files and ends is None:
        raise ConfigError(
            f"{folder}: there is no run in this folder; those that were started from here are in "
            "runs/, those of a node in results/ of its workspace"
        )
    run, hearth, lacks = None, None, []
    try:
        run = read_run(folder / "run.yml")
        hearth = yaml.safe_load((folder / "run.yml").read_text(encoding="utf-8")).get("hearth")
    except ConfigError as error:
        lacks += [f"Its settings are not known: {finding}" for finding in error.findings]
    story = Story.of(read_lines(folder / "metrics.jsonl"))
    if not story.windows:
        lacks.append("No step is on record, so there is nothing to draw.")
    name = folder.resolve().name
    causes = failures(ends.by_node, folder / "logs") if ends else {}
    return Known(run.name if run else name, story, run, hearth, ends, files, causes, lacks)
