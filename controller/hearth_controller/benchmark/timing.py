"""Timing of the counted steps of a run, from its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hearth.base.errors import LaunchError
from hearth_controller.benchmark.results import Took
from hearth_controller.runs.story import Story
from hearth_controller.runs.windows import totals


def took(lines: Iterable[Mapping[str, Any]], warm_up: int, whole_seconds: float) -> Took:
    """Return the timing of the steps after the first `warm_up`, from lines of a metrics.jsonl.

    The first steps are not counted: they compile kernels, reserve memory and adjust the split.

    Raises:
        LaunchError: The run ended before its last step, or no step is left to count.
    """
    story = Story.of(lines)
    if story.step < story.steps:
        raise LaunchError(f"it ended after {story.step} of {story.steps} steps")
    counted = [each for each in story.windows if each.step - each.steps >= warm_up]
    if not counted:
        raise LaunchError(f"no step after the first {warm_up} is on record")
    parts = {node: part.tokens for node, (part, _) in totals(counted).items()}
    return Took(
        steps=sum(each.steps for each in counted),
        tokens=sum(parts.values()),
        seconds=sum(each.seconds for each in counted),
        whole_seconds=whole_seconds,
        parts=parts,
        versions=dict(story.facts.get("versions") or {}),
    )
