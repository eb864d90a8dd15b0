"""The end of a run on the controller: its outcome on record, its report, its closing text."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hearth.record.story import read_story
from hearth_controller.base.paths import as_typed
from hearth_controller.runs.outcome import Outcome
from hearth_controller.runs.summary import script_or_model, script_summary, summary


@dataclass(frozen=True)
class Closing:
    """The end of a run for people and for programs.

    Attributes:
        text: the closing text.
        facts: the same as data.
        changed: whether the report changed.
        warning: why there is no report, '' if there is one.
    """

    text: str
    facts: dict[str, Any]
    changed: bool
    warning: str


def close(run: str, folder: Path, outcome: Outcome) -> Closing:
    """Record the outcome of a run in its `folder`, write its report and sum it up.

    There is no report of a person's script: its steps and settings are unknown.
    """
    changed, warning = False, ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        outcome.write(folder)
        changed = not outcome.script and _write_report(folder)
    except Exception as error:  # must not hide how the run ended
        warning = f"{folder}: no report could be written: {error}"
    common = (outcome, as_typed(folder), [path.name for path in folder.glob("*")])
    facts = {"run": run, "state": outcome.state, "folder": str(folder), "nodes": [*outcome.by_node]}
    script, model = script_or_model(folder / "run.yml")
    if script:
        return Closing(script_summary(script, *common), facts, changed, warning)
    story = read_story(folder).explain(outcome.launches)
    before, after = story.perplexity
    facts |= {
        "step": story.step,
        "steps": story.steps or None,
        "loss": story.loss,
        "seconds": story.seconds,
        "perplexity": {"before": before, "after": after},
        "scores": [asdict(score) for score in story.scores.values()],
        "shared": [
            {name: getattr(each, name) or "" for name in ("what", "place", "error", "again")}
            for each in story.shared.values()
        ],
    }
    text = summary(run, shlex.quote(model), story, *common)
    return Closing(text, facts, changed, warning)


def _write_report(folder: Path) -> bool:
    """Write the report; return whether it changed."""
    # Imported here: the plotting library takes a second to load and may be missing.
    from hearth_controller.report.page import FILE, write_report

    path = folder / FILE
    earlier = path.read_bytes() if path.exists() else None
    return write_report(folder).read_bytes() != earlier
