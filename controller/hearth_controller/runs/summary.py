"""The closing text of a run: its outcome, its result, its files and the next commands."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from pathlib import Path

from hearth.after.scores import rows_of
from hearth.base.errors import ConfigError
from hearth.base.text import aligned, duration
from hearth.config import read_run
from hearth.record.absences import describe_cost
from hearth.record.story import Story
from hearth_controller.runs.energy import describe, energy_of
from hearth_controller.runs.listing import time_taken
from hearth_controller.runs.outcome import Outcome
from hearth_controller.script.run import ScriptRun, read_script

_WIDTH, _LINES = 76, 4
_PLACES = {
    "report": "report.html",
    "adapter": "adapter",
    "model": "model",
    "lowest loss": "best",
    "metrics": "metrics.jsonl",
    "logs": "logs",
}

Row = tuple[str, str | list[str]]
"""A row of the text: a label, and one line or several."""


def summary(
    run: str,
    model: str,
    story: Story,
    outcome: Outcome,
    folder: str,
    files: Collection[str],
) -> str:
    """Return the closing text of a run of Hearth's trainer.

    `model` is the name of its model for a shell; `folder` is its folder on the controller, as
    typed, with these `files`.
    """
    state, hearth = outcome.state, outcome.hearth
    rows: list[Row] = []
    before, after = story.accuracy
    if before is not None and after is not None:
        rows.append(("held-out preferences", f"{before:.0%} → {after:.0%} judged rightly"))
    before, after = story.perplexity
    if before and after:
        change = f"{before:.2f} → {after:.2f}  ({after / before - 1:+.0%})"
        rows.append(("held-out perplexity", change))
    if story.reason:
        rows.append(("ended early", paragraph(story.reason)))
    if (sample := story.sample) and state == "finished":
        rows.append(("held-out question", paragraph(sample.question)))
        rows += [
            (label, paragraph(answer))
            for label, answer in (
                ("  base model", sample.base),
                ("  before", sample.before),
                ("  after", sample.after),
            )
            if answer is not None
        ]
    rows += _scores(story)
    rows += _job(outcome) + _absences(story) + _interruptions(outcome, story)
    if story.disk_news:
        news = [f"step {each.step}: {each.text}" for each in story.disk_news]
        rows.append(("disks", _first(news)))
    rows += _slow_links(story) + _unreported(outcome)
    if energy := energy_of(story, outcome.electricity_price):
        rows.append(("energy", textwrap.wrap(describe(energy), _WIDTH)))
    rows += [(label, f"{folder}/{name}") for label, name in _PLACES.items() if name in files]
    if state == "finished":
        rows += _shared(story)
        more = "--early-stop none" if story.reason else f"--max-steps {story.steps * 2}"
        if {"adapter", "model"} & {*files}:
            rows += [
                ("talk to it", f"{hearth} chat {run}"),
                ("export it", f"{hearth} export {run} --to ollama"),
                ("share it", f"{hearth} share {run} --push OWNER/NAME"),
                ("is it better?", f"{hearth} eval hellaswag --run {run}"),
            ]
        rows += [
            ("train longer", f"{hearth} resume {run} {more}"),
            ("your own data", f"{hearth} train {model} --dataset FILE.jsonl"),
            ("every setting", f"{hearth} train --help-all"),
        ]
    rows += _next_command(outcome, run, resumable=bool(story.checkpoints))
    if state == "failed":
        rows.append(_what_happened(outcome, folder))
    ended = story.ended and state != "failed"
    elapsed = f" in {time_taken(story.length, story.seconds)}" if ended else ""
    worse = textwrap.wrap(story.worse, _WIDTH) if story.worse else []
    headline = _headline(run, _steps(story, outcome), outcome, elapsed)
    return "\n".join([*worse, headline, *table(rows)])


def script_summary(script: ScriptRun, outcome: Outcome, folder: str, files: Collection[str]) -> str:
    """Return the closing text of a run of a person's script; see `summary` for the arguments."""
    rows = _job(outcome) + _interruptions(outcome, Story()) + _unreported(outcome)
    rows += [(name, f"{folder}/{name}") for name in ("files", "logs") if name in files]
    rows += _next_command(outcome, script.name, resumable=True)
    if outcome.state == "failed":
        rows.append(_what_happened(outcome, folder))
    first = _headline(script.name, script.program, outcome, _script_seconds(script, outcome))
    return "\n".join([first, *table(rows)])


def script_or_model(path: Path) -> tuple[ScriptRun | None, str]:
    """Return the script of the run file at `path`, or None and the name of its model.

    A file that is torn, or of another version, must not hide how the run ended.
    """
    try:
        if script := read_script(path):
            return script, ""
        return None, read_run(path).settings.model
    except ConfigError:
        return None, "MODEL"


def paragraph(text: str) -> list[str]:
    """Wrap `text` into a few lines, cut at a word if it is longer.

    Text of a model can hold anything: nothing of it reaches the terminal as a command.
    """
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(words, _WIDTH, max_lines=_LINES, placeholder=" …") or [""]


def table(rows: Iterable[Row]) -> list[str]:
    """Return the lines of a table with two columns."""
    rows = list(rows)
    wide = max((len(label) for label, _ in rows), default=0)
    lines = []
    for label, content in rows:
        for part in [content] if isinstance(content, str) else content:
            lines.append(f"  {label:<{wide}}  {part}")
            label = ""
    return lines


def _scores(story: Story) -> list[Row]:
    """Return the scores of lm-eval before and after the training."""
    scores = list(story.scores.values())
    return [("scores", [line.rstrip() for line in aligned(rows_of(scores))])] if scores else []


def _shared(story: Story) -> list[Row]:
    """Return the places that have the result, and the parts that failed with what repeats them."""
    rows: list[Row] = []
    for each in story.shared.values():
        if each.error:
            lines = [*paragraph(each.error), f"again: {each.again}"]
            rows.append((f"{each.what} failed", lines))
        elif each.place:
            rows.append(({"push": "pushed to"}.get(each.what, "copied to"), each.place))
    return rows


def _headline(run: str, done: str, outcome: Outcome, elapsed: str) -> str:
    """Return the first line: the outcome of the run, with the work `done` and its duration."""
    match outcome.state:
        case "finished":
            return f"{run} finished: {done} on {', '.join(outcome.by_node)}{elapsed}"
        case "stopped":
            return f"{run} was stopped: {done}{elapsed}"
        case "lost":
            return f"{run} was lost from sight, and may still be under way: {done}"
        case _:
            return f"{run} failed: {done}{elapsed}"


def _steps(story: Story, outcome: Outcome) -> str:
    """Return the number of steps done, which the node of rank 0 has on record in any case."""
    if story.steps:
        return f"{story.step} of {story.steps} steps"
    if next(iter(outcome.by_node)) not in outcome.unanswered:
        return "before its first step"
    others = ", ".join(outcome.unanswered)
    return f"how far it came is on record on nodes that do not answer ({others})"


def _script_seconds(script: ScriptRun, outcome: Outcome) -> str:
    """Return the duration of a script's run, empty if it was launched more than once.

    The record does not tell how long such a run lay idle between its launches.
    """
    outcomes = outcome.by_node.values()
    last = max((str(end.get("since") or "") for end in outcomes), default="")
    if not last or any(end.get("generation") for end in outcomes):
        return ""
    elapsed = datetime.fromisoformat(last) - datetime.fromisoformat(script.created)
    return f" in {duration(max(elapsed.total_seconds(), 0))}"


def _next_command(outcome: Outcome, run: str, resumable: bool) -> list[Row]:
    """Return the command to type next for a run that did not finish.

    A run that was lost from sight may still be under way: look first.
    """
    if outcome.state == "lost":
        return [("look again", f"{outcome.hearth} attach {run}")]
    if outcome.state == "finished" or not resumable:
        return []
    return [("go on", f"{outcome.hearth} resume {run}")]


def _what_happened(outcome: Outcome, folder: str) -> Row:
    """Return the command that shows why a run failed."""
    blamed = {(end.get("cause") or {}).get("node") for end in outcome.by_node.values()}
    log = f"{blamed.pop()}.log" if len(blamed) == 1 and None not in blamed else "*.log"
    return "what happened", f"less {folder}/logs/{log}"


def _absences(story: Story) -> list[Row]:
    """Return the absences of nodes from a run that went on in place, and their cost."""
    lines = _first([f"{each.node} {each.text}" for each in story.absences])
    if not lines:
        return []
    regroups = f"in {len(story.teams)} regroup{'s' * (len(story.teams) > 1)}"
    cost = describe_cost(story.teams)
    return [("on the way", lines + [f"{cost} {regroups}"] * bool(cost))]


def _slow_links(story: Story) -> list[Row]:
    """Return the links that held up the exchange on the way."""
    lines = _first([f"from step {mark.step}: {mark.text}" for mark in story.links])
    return [("links", lines)] if lines else []


def _interruptions(outcome: Outcome, story: Story) -> list[Row]:
    """Return the causes that ended a launch while the run went on.

    Causes that only made the ranks form a new group are in the `story`.
    """
    causes = [
        f"{cause['node']}: {cause['message'].splitlines()[0]}"
        for launch in outcome.launches
        if (cause := launch.get("cause"))
        and cause["kind"] != "node_back"
        and not story.regrouped_after(launch.get("generation", 0))
    ]
    return [("went on after", _first(causes))] if causes else []


def _first(texts: Sequence[str]) -> list[str]:
    """Return the lines of the first texts, and how many there are more."""
    more = [f"and {len(texts) - _LINES} more"] if len(texts) > _LINES else []
    return [line for text in texts[:_LINES] for line in textwrap.wrap(text, _WIDTH)] + more


def _job(outcome: Outcome) -> list[Row]:
    """Return the Slurm job of a run, and why Slurm stopped it."""
    ends = outcome.by_node.values()
    if not (job := next((end["job"] for end in ends if end.get("job")), "")):
        return []
    causes = (str((end.get("cause") or {}).get("message")) for end in ends)
    why = next((cause for cause in causes if f"job {job}" in cause), job)
    return [("Slurm job", why if outcome.state == "stopped" else job)]


def _unreported(outcome: Outcome) -> list[Row]:
    """Return the nodes whose outcome is unknown in a run that ended well."""
    lines = [line for node, why in outcome.silent.items() for line in paragraph(f"{node}: {why}")]
    return [("not seen to its end", lines)] if lines else []
