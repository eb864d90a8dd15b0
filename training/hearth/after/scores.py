"""Scores by task and metric, from what lm-eval returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

_NOT_A_SCORE = ("alias", "sample_len", "sample_count")


@dataclass(frozen=True)
class Score:
    """A metric of a task before and after the training, with standard errors.

    `before` is None where there was no model before. `higher` is whether more is better, `examples`
    the number of them.
    """

    task: str
    metric: str
    after: float
    after_error: float | None = None
    before: float | None = None
    before_error: float | None = None
    higher: bool = True
    examples: int = 0

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `about the same`: a change within two standard errors."""
        if self.before is None:
            return ""
        change = (self.after - self.before) * (1 if self.higher else -1)
        noise = 2 * _together(self.before_error, self.after_error)
        if not change or abs(change) <= noise:
            return "about the same"
        return "better" if change > 0 else "worse"


def _together(*errors: float | None) -> float:
    """Return the standard error of a difference of two scores with these."""
    return sum(error**2 for error in errors if error is not None) ** 0.5


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


def as_records(scores: Iterable[Score]) -> list[dict[str, Any]]:
    """Return scores as JSON, for the record of a run."""
    return [asdict(score) for score in scores]


def from_records(records: Iterable[Mapping[str, Any]]) -> list[Score]:
    """Return the scores in the record of a run."""
    return [Score(**record) for record in records]


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
