"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from tests.bench.paper import median_of, spread

KEPT = (
    (
        "a step of unequal rows",
        "the sum over all rows of the step, whoever has them: the gradient of one big GPU",
        "the mean of the replicas' means: exact only where all have equally many",
    ),
    (
        "a step with a node less",
        "has as many rows as before, divided anew",
        "has the rows of the lost one less",
    ),
    (
        "after a loss",
        "all go back to the newest checkpoint; the steps since then are done again",
        "the survivors throw away the step they are in, and its rows; all others count",
    ),
    (
        "model and optimizer of who comes back",
        "from the checkpoint that a pause has just made",
        "from a live replica; it needs no checkpoint",
    ),
    (
        "needs",
        "rank 0's machine; ranks start anew, and import everything again",
        "the machine of the lighthouse; two servers in each replica that listen on every "
        "interface and ask nobody who he is, and what comes from them is unpickled",
    ),
)
"""What each keeps: of what, Hearth, torchft."""


class Step(NamedTuple):
    """A step: when it was done (seconds since 1970), its number, and how many took part."""

    at: float
    number: int
    together: int


def figures_of(lost: float, steps: Sequence[Step], on: Step, past: Step) -> dict[str, float]:
    """Return the cost of losing a node: seconds of pause and repeated steps.

    `steps` were on record when it was lost; `on` is the survivors' next step, `past` their first
    that had not been done before.
    """
    before = [step for step in steps if step.at <= lost]
    pauses = [after.at - step.at for step, after in zip(before[-21:], before[-20:], strict=False)]
    return {
        "step_seconds": median(pauses),
        "seconds_until_on": on.at - lost,
        "seconds_until_past": past.at - lost,
        "steps_again": past.number - on.number,
    }


def _spread(runs: Sequence[Mapping[str, float]], name: str) -> str:
    """Return the median of a figure, with the least and the most if there are several."""
    values = [run[name] for run in runs]
    several = f" ({spread(values, 1)})" if len(values) > 1 else ""
    return f"{median(values):.1f}{several}"


def _sooner(what: str, figures: Mapping[str, Any], name: str) -> str:
    """Return a line that says which of the two is sooner."""
    hearth, torchft = (median_of(figures[runs], name) for runs in ("hearth_runs", "runs"))
    sooner = "torchft" if torchft < hearth else "Hearth"
    return f"- {what}: {sooner} is sooner, by {abs(hearth - torchft):.0f} s."


def table(figures: Mapping[str, Any]) -> str:
    engines = {"Hearth": figures["hearth_runs"], f"torchft {figures['torchft']}": figures["runs"]}
    lines = [
        f"CPU, gloo, three nodes on loopback, one rank each. Measured on {figures['date']} on "
        f"{figures['computer']}, of which other work wanted {figures['load']:.0f} when it began; "
        f"Hearth {figures['hearth']}, torch {figures['torch']}. {figures['work']} Both with the "
        "times they ship with. One node, not rank 0's, is killed (-9) after step "
        f"{figures['lost_after']}; once the others are past "
        "that step, it is started again. Seconds, medians of n with the least and the most.",
        "",
        "| | n | a step | until the others' next step | until past the step of the loss | steps "
        "done again | from starting the lost one until a step of all three |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for name, runs in engines.items():
        lines.append(
            f"| {name} | {len(runs)} | {median_of(runs, 'step_seconds'):.2f} | "
            f"{_spread(runs, 'seconds_until_on')} | {_spread(runs, 'seconds_until_past')} | "
            f"{median_of(runs, 'steps_again'):.0f} | "
            f"{_spread(runs, 'seconds_until_in')} |"
        )
    lines += [
        "",
        _sooner("The others' next step", figures, "seconds_until_on"),
        _sooner("A step of all three", figures, "seconds_until_in"),
        "",
        f"| | {' | '.join(engines)} |",
        "|---|---|---|",
        *(f"| {of} | {hearth} | {torchft} |" for of, hearth, torchft in KEPT),
    ]
    return "\n".join(lines)
