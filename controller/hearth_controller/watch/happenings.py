"""The events of a run: launches, nodes that left or came back, checkpoints, evaluations. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hearth.base.text import plain
from hearth.record.story import Evaluation, Launch, Story


@dataclass(frozen=True)
class Happening:
    """An event of a run; `at` is seconds since the run began, `alarm` marks a loss or a fault."""

    at: float
    text: str
    alarm: bool = False


def happenings(story: Story) -> list[Happening]:
    """Return the events of a run, the newest first."""
    found = [
        *(_launch(launch, number) for number, launch in enumerate(story.launches)),
        *(Happening(team.at, team.text, bool(team.left)) for team in story.teams),
        *(Happening(each.at, f"step {each.step}: {each.text}", True) for each in story.disk_news),
        *(Happening(mark.at, f"checkpoint at step {mark.step}") for mark in story.checkpoints),
        *(_evaluation(each) for each in story.evaluations),
        *(Happening(each.at, f"from step {each.step}: {each.text}") for each in story.replans),
        *(Happening(each.at, f"step {each.step}: {each.text}", True) for each in story.links),
        *(
            Happening(each.at, f"step {each.step} skipped, {each.text}", True)
            for each in story.skips
        ),
    ]
    if story.state:
        why = f": {story.reason}" if story.reason else ""
        found.append(Happening(story.length, f"{story.state} after step {story.step}{why}"))
    # Of two at the same time, the later one of the list is the newer one.
    return sorted(found, key=lambda each: each.at)[::-1]


def clock_time(story: Story, at: float) -> str:
    """Return the local time of day, `at` seconds after the run began; '' if that is unknown."""
    if story.began is None:
        return ""
    return (story.began + timedelta(seconds=at)).astimezone().strftime("%H:%M:%S")


def _launch(launch: Launch, number: int) -> Happening:
    """Return the start of the ranks; every one but the first follows a loss."""
    nodes = ", ".join(map(plain, launch.present))
    if number:
        return Happening(launch.began, f"began again after step {launch.step} on {nodes}", True)
    return Happening(launch.began, f"began on {nodes}")


def _evaluation(evaluation: Evaluation) -> Happening:
    """Return an evaluation on held-out data."""
    known = {"loss": evaluation.loss, "perplexity": evaluation.perplexity}
    values = ", ".join(f"{name} {value:.3f}" for name, value in known.items() if value is not None)
    return Happening(
        evaluation.at, f"held out after step {evaluation.step}: {values or 'no value'}"
    )
