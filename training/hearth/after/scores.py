"""Scores by task and metric, from what lm-eval returns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.record.events import Score

_NOT_A_SCORE = ("alias", "sample_len", "sample_count")


def scores_of(after: Mapping[str, Any], before: Mapping[str, Any] | None) -> list[Score]:
    """Return the scores in lm-eval's results after and before the training, in order of tasks.

    The tasks of a group that has a score of its own are left out.
    """
    inside = {
        task
        for group, tasks in (after.get("group_subtasks") or {}).items()
        if any(_metrics(after["results"].get(group, {})))
        for task in tasks
    }
    found = []
    for task, numbers in after["results"].items():
        if task in inside:
            continue
        earlier = before["results"].get(task, {}) if before else {}
        higher = (after.get("higher_is_better") or {}).get(task) or {}
        examples = (after.get("n-samples") or {}).get(task) or {}
        for name in _metrics(numbers):
            metric, _, way = name.partition(",")
            error = f"{metric}_stderr,{way}"
            found.append(
                Score(
                    task,
                    metric if way in ("", "none") else f"{metric} ({way})",
                    float(numbers[name]),
                    _number(numbers.get(error)),
                    _number(earlier.get(name)),
                    _number(earlier.get(error)),
                    higher=higher.get(metric) is not False,
                    examples=int(examples.get("effective", 0)),
                )
            )
    return found


def _metrics(numbers: Mapping[str, Any]) -> list[str]:
    """Return the keys of `numbers` that are scores."""
    return [
        name
        for name, value in numbers.items()
        if name not in _NOT_A_SCORE and "_stderr" not in name and _number(value) is not None
    ]


def _number(value: Any) -> float | None:
    """Return a number as such, None for what lm-eval writes instead of one ("N/A")."""
    return float(value) if isinstance(value, int | float) and value == value else None


def rows_of(scores: Sequence[Score]) -> list[tuple[str, ...]]:
    """Return the scores as rows of a table, the titles first."""
    rows = [("task", "metric", "before", "after", "±", "examples", "")]
    for each in scores:
        error = max((e for e in (each.before_error, each.after_error) if e is not None), default=0)
        before = f"{each.before:.4g}" if each.before is not None else "–"
        rows.append(
            (
                each.task,
                each.metric,
                before,
                f"{each.after:.4g}",
                f"{error:.2g}" if error else "–",
                f"{each.examples:,}" if each.examples else "–",
                each.verdict,
            )
        )
    return rows
