"""The state of a run, folded from its events: launches, teams, steps, evaluations, checkpoints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from hearth.plan.slow_links import SlowLinks
from hearth.record.absences import NodeAbsence, absences, explained
from hearth.record.events import (
    CheckpointEvent,
    DiskEvent,
    EndEvent,
    EvaluateEvent,
    ExampleEvent,
    PlanEvent,
    RunEvent,
    SampleEvent,
    Score,
    ScoresEvent,
    SharedEvent,
    SkipEvent,
    StartEvent,
    StepEvent,
    TeamEvent,
    read_events,
)
from hearth.record.windows import NodeWork, Window, sum_of_known, warmest


@dataclass(frozen=True)
class Sample:
    """One held-out question with the expected answer and the model's answers before and after.

    `base` is its answer without any adapter, where the run began with one.
    """

    question: str
    expected: str | None = None
    base: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Mark:
    """A change after a step; `at` is seconds since the run began, `alarm` marks a loss or fault."""

    at: float
    step: int
    text: str
    alarm: bool = False

    @property
    def news(self) -> str:
        """The change in a line for people."""
        return f"step {self.step}: {self.text}"


@dataclass
class Story:
    """The state and the history of a run; for a resumed run, the latest records count.

    Attributes:
        ended: Whether the last launch has an end on record.
        state: `finished` or `stopped`, or None without an end on record.
        reason: Why the run finished before its last step; None if it did not.
        length: Seconds from the first record to the last.
        spans: By launch, its first and its last record, in seconds since the run began.
        facts: The latest start: precision, rows, versions and more.
        regroups: Number of times that nodes left or joined, in all launches.
        loss, learning_rate, tokens_per_second, eta_seconds: As of the last step, if they are known.
        slow_links: The links that hold up the exchange as of the last step; None without any.
        links: The steps when a link became slow, or no link was slow any more.
        joules: Energy of all nodes so far, None if none is measured.
        disks: By node that writes no checkpoints now, the reason.
        disk_news: The changes of that.
        joules_at_end: By node, the part of it after the last step.
        scores: By task and metric, those of lm-eval before and after.
        shared: By kind and place, the parts that followed the training; of a kind that failed, the
            last failure, until one of that kind is done.
        news: All events that people want to know of, in order.
    """

    step: int = 0
    steps: int = 0
    ended: bool = False
    state: str | None = None
    reason: str | None = None
    began: datetime | None = None
    length: float = 0.0
    spans: list[list[float]] = field(default_factory=list)
    loss: float | None = None
    learning_rate: float | None = None
    tokens_per_second: float | None = None
    eta_seconds: float | None = None
    slow_links: SlowLinks | None = None
    links: list[Mark] = field(default_factory=list)
    joules: float | None = None
    joules_at_end: dict[str, float] = field(default_factory=dict)
    facts: StartEvent = field(default_factory=StartEvent)
    regroups: int = 0
    launches: list[StartEvent] = field(default_factory=list)
    teams: list[TeamEvent] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    evaluations: list[EvaluateEvent] = field(default_factory=list)
    samples: dict[str, Sample] = field(default_factory=dict)
    example: ExampleEvent | None = None
    checkpoints: list[CheckpointEvent] = field(default_factory=list)
    plans: list[PlanEvent] = field(default_factory=list)
    skips: list[SkipEvent] = field(default_factory=list)
    disks: dict[str, str] = field(default_factory=dict)
    disk_news: list[Mark] = field(default_factory=list)
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    shared: dict[tuple[str, str], SharedEvent] = field(default_factory=dict)
    news: list[Mark | RunEvent] = field(default_factory=list)

    @classmethod
    def from_events(cls, events: Iterable[RunEvent]) -> Story:
        """Fold the events of a run."""
        story = cls()
        for event in events:
            story.add(event)
        return story

    def explain(self, launches: Sequence[Mapping[str, Any]]) -> Story:
        """Take the reasons why nodes left from a supervisor's record; return this story.

        `launches` are as in `absences.explained`.
        """
        for number, team in enumerate(self.teams):
            earlier = self.teams[number - 1] if number else None
            same = earlier and earlier.launch == team.launch
            since = earlier.generation if same else self.launches[team.launch].generation
            team.left = explained(team, since, launches)
        return self

    def add(self, event: RunEvent) -> None:
        """Add an event; of one that contradicts those before it only the part that fits."""
        at = event.at = self._at(event)
        start = isinstance(event, StartEvent)
        if start or not self.spans:
            self.spans.append([at, at])
        self.spans[-1][1] = at
        self.length = max(self.length, at)
        event.launch = len(self.launches) - (not start)
        event.team = 0 if start else len(self._teams_of_launch)
        with suppress(LookupError, TypeError, ValueError, ZeroDivisionError):
            self._add(event)

    @property
    def replans(self) -> list[Mark]:
        """Changes of the split of full batches, or of full rounds."""
        whole = max((sum(plan.split) for plan in self.plans), default=0)
        full = [(plan, self.rows_of(plan)) for plan in self.plans if sum(plan.split) == whole]
        found = []
        for (_, before), (plan, now) in itertools.pairwise(full):
            if before != now:
                per = "step" if plan.rows_of_round is None else "round"
                shares = ", ".join(f"{node} {count}" for node, count in now.items())
                found.append(Mark(plan.at, plan.step, f"rows a {per}: {shares}"))
        return found

    @property
    def present(self) -> tuple[str, ...]:
        """The nodes of the newest team; () before the first launch."""
        return self._present(len(self.launches) - 1, None) if self.launches else ()

    @property
    def absences(self) -> list[NodeAbsence]:
        """The times that the run went on without one of its nodes, in order."""
        return absences(self.launches, self.teams)

    @property
    def away(self) -> dict[str, NodeAbsence]:
        """The nodes that the newest team is without."""
        return {each.node: each for each in self.absences if each.until is None}

    def regrouped_after(self, generation: int) -> bool:
        """Whether the group of `generation` was followed by a new one of the same ranks' processes.

        Otherwise the ranks began again, or nothing of it is on record.
        """
        launches = {each.generation: False for each in self.launches}
        found = launches | {each.generation: True for each in self.teams}
        later = [number for number in found if number > generation]
        return bool(later) and found[min(later)]

    @property
    def group(self) -> StartEvent | TeamEvent | None:
        """The newest group of the last launch, None before the first one."""
        return next(iter([*self._teams_of_launch[-1:], *self.launches[-1:]]), None)

    @property
    def _teams_of_launch(self) -> list[TeamEvent]:
        """The regroups of the last launch."""
        return [team for team in self.teams if team.launch == len(self.launches) - 1]

    @property
    def window(self) -> Window | None:
        """The newest window of the last launch, None before its first step."""
        last = self.windows[-1] if self.windows else None
        return last if last and last.launch == len(self.launches) - 1 else None

    @property
    def nodes(self) -> list[str]:
        """All nodes that ever took part, in order of rank."""
        return list(dict.fromkeys(name for launch in self.launches for name in launch.nodes))

    @property
    def reached(self) -> int | None:
        """The step of the newest checkpoint, None without any."""
        return max((each.step for each in self.checkpoints), default=None)

    @property
    def held_out(self) -> dict[str, EvaluateEvent]:
        """The last evaluation of each time: `before`, `during`, `after`."""
        return {each.when or "": each for each in self.evaluations}

    @property
    def perplexity(self) -> tuple[float | None, float | None]:
        """Held-out perplexity before and after training."""
        before, after = (self.held_out.get(when) for when in ("before", "after"))
        return before and before.perplexity, after and after.perplexity

    @property
    def accuracy(self) -> tuple[float | None, float | None]:
        """Part of the held-out preferences judged rightly, before and after training."""
        before, after = (self.held_out.get(when) for when in ("before", "after"))
        return before and before.reward_accuracy, after and after.reward_accuracy

    @property
    def seconds(self) -> float:
        """Total duration of its launches, without the time between them."""
        return sum(last - first for first, last in self.spans)

    @property
    def worse(self) -> str | None:
        """The held-out loss that rose over the run, and what to change; None if it did not."""
        before, after = (self.held_out.get(when) for when in ("before", "after"))
        if before is None or after is None or not _rose(before, after):
            return None
        if None not in self.accuracy:
            return (
                "WORSE THAN BEFORE: the loss of held-out preferences rose from "
                f"{_shown(before.loss)} to {_shown(after.loss)}. Start a new run with a lower "
                "learning_rate or fewer epochs; eval_every=STEPS keeps the best weights of a run "
                "in best/"
            )
        return (
            f"WORSE THAN BEFORE: the held-out perplexity rose from {_shown(before.perplexity)} to "
            f"{_shown(after.perplexity)}. Start a new run with a lower learning_rate or fewer "
            "epochs; eval_every=STEPS keeps the best weights of a run in best/"
        )

    @property
    def sample(self) -> Sample | None:
        """The first question with answers both before and after training, or else the first one."""
        samples = list(self.samples.values())
        both = (each for each in samples if each.before is not None and each.after is not None)
        return next(both, samples[0] if samples else None)

    def _at(self, event: RunEvent) -> float:
        """Return the time of an event, in seconds since the run began."""
        try:
            time = datetime.fromisoformat(event.time)
            self.began = self.began or time
            return (time - self.began).total_seconds()
        except (ValueError, TypeError):  # none, or one without a zone among others
            return self.length

    def _add(self, event: RunEvent) -> None:
        match event:
            case StartEvent():
                self.facts, self.step, self.steps = event, event.step, event.steps
                self.ended, self.state, self.reason = False, None, None
                self.disks, self.slow_links = {}, None
                self.launches.append(event)
            case TeamEvent():
                self.regroups += 1
                if not self.launches:
                    return
                self.teams.append(event)
            case StepEvent():
                self.step, self.steps = event.step, event.steps or self.steps
                self.loss, self.eta_seconds = event.loss, event.eta_seconds
                self.tokens_per_second = event.tokens_per_second
                self.learning_rate, self.joules = event.learning_rate, event.energy_joules
                self._links(event)
                self._window(event)
            case PlanEvent():
                if len(event.split) == len(self.launches[-1].nodes):
                    self.plans.append(event)
            case EvaluateEvent():
                self.evaluations.append(event)
            case SampleEvent():
                self._sample(event)
            case ExampleEvent():
                self.example = self.example or event
            case CheckpointEvent():
                self.checkpoints.append(event)
            case SkipEvent():
                self.skips.append(event)
            case DiskEvent():
                self._disks(event)
            case ScoresEvent():
                self.scores |= {(score.task, score.metric): score for score in event.scores}
                self.shared.pop(("eval", ""), None)
            case SharedEvent():
                self.shared.pop((event.what, ""), None)
                self.shared[event.what, event.place or ""] = event
            case EndEvent():
                self.ended = True
                self.step, self.state, self.reason = event.step, event.state, event.reason
                if event.energy_joules is not None:
                    self.joules = event.energy_joules
                self._energy_at_end(event)
        if event.news:
            self.news.append(event)

    def _disks(self, event: DiskEvent) -> None:
        """Process all nodes that write no checkpoints from an event on."""
        before, self.disks = self.disks, event.failing
        texts = [f"{node} writes no checkpoints ({why})" for node, why in self.disks.items()]
        texts += [f"{node} writes again" for node in before.keys() - self.disks.keys()]
        for text in texts:
            self.disk_news.append(Mark(event.at, event.step, text, alarm=True))
            self.news.append(self.disk_news[-1])

    def _links(self, event: StepEvent) -> None:
        """Process the slow links of a step; those that were slow before are no news."""
        before, slow = self.slow_links, SlowLinks.from_record(event.slow_links)
        self.slow_links, text = slow, ""
        if slow and not (before and before.hops == slow.hops):
            text = f"{slow.text}; {slow.advised}"
        elif before and not slow:
            text = "no link holds up the exchange any more"
        if text:
            self.links.append(Mark(event.at, event.step, text, alarm=True))
            self.news.append(self.links[-1])

    def _window(self, event: StepEvent) -> None:
        """Add the window that ends with a step."""
        if not self.launches:  # the `start` line is lost
            ranks = [{"node": f"rank {number}"} for number in range(len(event.rows_by_rank))]
            self.launches.append(StartEvent(ranks=ranks))
            event.launch = 0
        since = self.window.step if self.window else self.launches[-1].step
        steps, seconds = event.step - since, event.tokens / event.tokens_per_second
        columns = {
            "tokens": (sum, event.tokens_per_second_by_rank, seconds),
            "rows": (sum, event.rows_by_rank, 1),
            "compute_seconds": (fmean, event.compute_seconds_by_rank, steps),
            "wait_seconds": (fmean, event.wait_seconds_by_rank, steps),
            "peak_memory_mib": (max, event.peak_memory_mib_by_rank, 1),
        }
        if not (steps > 0 and seconds > 0 and sum(event.rows_by_rank) > 0):
            return  # figures are means over these
        nodes = self.launches[-1].nodes
        unknown = [None] * len(nodes)
        work = {
            name: _by_node(nodes, [number * times for number in numbers], together)
            for name, (together, numbers, times) in columns.items()
        } | {
            "celsius": _by_node(nodes, event.celsius_by_rank or unknown, warmest),
            "joules": _by_node(nodes, event.energy_joules_by_rank or unknown, sum_of_known),
        }
        parts = {
            node: NodeWork(**{name: numbers[node] for name, numbers in work.items()})
            for node in work["rows"]
            # One that has left within the window worked in its first steps.
            if node in self.present or work["tokens"][node]
        }
        ended = event.launch, event.step, steps, event.at
        self.windows.append(Window(*ended, seconds, event.loss, parts, event.team))

    def _energy_at_end(self, event: EndEvent) -> None:
        """Process the energy after the last step."""
        if by_rank := event.energy_joules_by_rank:
            found = _by_node(self.launches[-1].nodes, by_rank, sum_of_known)
            self.joules_at_end = {node: each for node, each in found.items() if each is not None}

    def _sample(self, event: SampleEvent) -> None:
        """Add an answer to those of its question."""
        had = self.samples.get(event.question, Sample(event.question))
        answers = {
            "base": event.base or had.base,
            "before": had.before,
            "after": had.after,
            "expected": event.expected or had.expected,
            event.when: event.answer,
        }
        self.samples[event.question] = Sample(event.question, **answers)

    def _present(self, launch: int, regroups: int | None) -> tuple[str, ...]:
        """Return the nodes of a launch after `regroups` of its regroups, or after all."""
        teams = [team for team in self.teams if team.launch == launch][:regroups]
        return tuple(teams[-1].nodes) if teams else self.launches[launch].present

    def rows_of(self, plan: PlanEvent) -> dict[str, int]:
        """Return the rows of a plan by node, without nodes that were away."""
        rows = _by_node(self.launches[plan.launch].nodes, plan.split, sum)
        present = self._present(plan.launch, plan.team)
        return {node: count for node, count in rows.items() if count or node in present}


def read_story(folder: Path, skim: bool = False) -> Story:
    """Return the state of the run in `folder` by its record; with `skim` without most windows."""
    return Story.from_events(read_events(folder, skim))


def _by_node(nodes: Sequence[str], by_rank: Sequence[Any], together: Any) -> dict[str, Any]:
    """Return one value per node by reducing the values of its ranks with `together`."""
    found: dict[str, list[Any]] = {}
    for node, number in zip(nodes, by_rank, strict=True):
        found.setdefault(node, []).append(number)
    return {node: together(numbers) for node, numbers in found.items()}


def _rose(before: EvaluateEvent, after: EvaluateEvent) -> bool:
    """Return whether the held-out loss rose, also to one that is not finite."""
    for first, last in ((before.loss, after.loss), (before.perplexity, after.perplexity)):
        if first is not None and last is not None:
            return last > first
    known = (before.loss, before.perplexity) != (None, None)
    return known and (after.loss, after.perplexity) == (None, None)


def _shown(perplexity: float | None) -> str:
    """Format a perplexity or a loss; None is one that was not finite or too large for a number."""
    return "infinity" if perplexity is None or math.isinf(perplexity) else f"{perplexity:.2f}"
