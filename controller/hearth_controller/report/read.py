"""Reader of a run's folder that skips missing and damaged files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from hearth.base.errors import ConfigError
from hearth.config import Run, read_run
from hearth.record.story import Story, read_story
from hearth_controller.runs.outcome import Outcome

_FILES = ("run.yml", "metrics.jsonl", "adapter", "model", "best", "logs")


@dataclass(frozen=True)
class RunFolder:
    """The contents of a run's folder.

    Attributes:
        under_way: The state of a run that has not ended, '' if it has or if that is not known.
        run: Settings and their origins, None if `run.yml` is missing or unreadable.
        hearth: Version of Hearth that wrote `run.yml`.
        outcome: Its end on each node, None for a run that was started by hand.
        files: The run's files that exist.
        failures: By node, the cause of the failure and its fix.
        lacks: Files that could not be read, as sentences.
    """

    name: str
    story: Story
    run: Run | None = None
    hearth: str | None = None
    outcome: Outcome | None = None
    files: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    lacks: list[str] = field(default_factory=list)
    under_way: str = ""

    @property
    def state(self) -> str:
        """An end state, that of a run under way, or `without an end` if none is on record."""
        if self.under_way:
            return self.under_way
        if self.outcome:
            return self.outcome.state
        return self.story.state or "without an end"


def read(folder: Path) -> RunFolder:
    """Read the folder of a run that ended, or whose end is unknown.

    Raises `ConfigError` if the folder is missing or holds no file of a run.
    """
    outcome = Outcome.read(folder)
    if not (_files(folder) or outcome):
        raise ConfigError(
            f"{folder}: there is no run in this folder; those that were started from here are in "
            "runs/, those of a node in results/ of its workspace"
        )
    story = read_story(folder)
    if outcome:
        story.explain(outcome.launches)
    return _run_folder(folder, story, outcome)


def read_under_way(folder: Path, story: Story, state: str) -> RunFolder:
    """Read the folder of a run that has not ended; its `story` and `state` come from its nodes."""
    return replace(_run_folder(folder, story, None), under_way=state)


def _run_folder(folder: Path, story: Story, outcome: Outcome | None) -> RunFolder:
    """Read what a folder knows of the run besides its story and its end."""
    run, hearth, lacks = None, None, []
    try:
        run = read_run(folder / "run.yml")
        hearth = yaml.safe_load((folder / "run.yml").read_text(encoding="utf-8")).get("hearth")
    except ConfigError as error:
        lacks += [f"Its settings are not known: {finding}" for finding in error.findings]
    if not story.windows:
        lacks.append("No step is on record, so there is nothing to draw.")
    name = run.name if run else folder.resolve().name
    causes = outcome.failures(folder / "logs") if outcome else {}
    return RunFolder(name, story, run, hearth, outcome, _files(folder), causes, lacks)


def _files(folder: Path) -> list[str]:
    """Return the names of a run's files that exist."""
    return [name for name in _FILES if (folder / name).exists()]
