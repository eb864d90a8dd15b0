"""From the metrics of a run to what its counted steps took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hearth.base.errors import LaunchError
from hearth_controller.benchmark.results import Took
from hearth_controller.runs.story import Story
from hearth_controller.runs.windows import totals


def took(lines: Iterable[Mapping[str, Any]], warm_up: int, whole_seconds: float) -> Took:
    """Return what the steps after the first `warm_up` took, from the lines of a metrics.jsonl.

    The first steps pay for what later ones find ready (kernels are compiled, memory is reserved,
    the split finds its place), and so are not counted.

    Raises:
        LaunchError: the run ended before its last step, or none is left to count.
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
