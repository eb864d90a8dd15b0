"""The history of a run from `metrics.jsonl`: launches, teams, steps, evaluations, checkpoints."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from hearth.after.scores import Score, from_records
from hearth.plan.slow_links import SlowLinks
from hearth.record.absences import Absence, Team, absences, explained
from hearth.record.held_out import HeldOut, describe_worse
from hearth.record.metric_line import is_sound
from hearth.record.windows import NodeWork, Window, sum_of_known, warmest


@dataclass(frozen=True)
class Launch:
    """One start of the ranks.

    Attributes:
        began: Seconds since the run began.
        step: Number of steps before it.
        nodes: By rank: its node, also of ranks that were away.
        present: The nodes that it began with.
    """

    generation: int
    began: float
    step: int
    nodes: tuple[str, ...]
    present: tuple[str, ...]


@dataclass(frozen=True)
class Evaluation:
    """Evaluation on held-out data after `step`; `at` is seconds since the run began."""

    at: float
    step: int
    when: str
    perplexity: float | None
    loss: float | None


@dataclass(frozen=True)
class Sample:
    """One held-out question with the expected answer and the model's answers before and after."""

    question: str
    expected: str | None = None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class TrainedExample:
    """One example as it was trained: its place in the data, and its texts, learned or not."""

    source: str
    stretches: tuple[tuple[bool, str], ...]


@dataclass(frozen=True)
class Mark:
    """An event after a step; `at` is seconds since the run began."""

    at: float
    step: int
    text: str


@dataclass(frozen=True)
class Plan:
    """A split of the rows from `step` on; `at` is seconds since the run began.

    Attributes:
        launch: Index of its launch in `Story.launches`.
        team: Number of regroups of its launch before it.
        present: The nodes that shared the rows.
        per: What is split: a `step`, or a `round` of local steps.
        nodes, rows, slowness: By rank: its node, its rows, and its current time as a multiple of
            the measured one (empty if not recorded).
    """

    at: float
    step: int
    launch: int
    team: int
    present: tuple[str, ...]
    per: str
    nodes: tuple[str, ...]
    rows: tuple[int, ...]
    slowness: tuple[float, ...]

    @property
    def mark(self) -> Mark:
        """The plan as an event, with the rows by node."""
        shares = ", ".join(f"{node} {count}" for node, count in self.by_node.items())
        return Mark(self.at, self.step, f"rows a {self.per}: {shares}")

    @property
    def by_node(self) -> dict[str, int]:
        """Rows by node, without nodes that were away."""
        rows = _by_node(self.nodes, self.rows, sum)
        return {node: count for node, count in rows.items() if count or node in self.present}


@dataclass(frozen=True)
class Shared:
    """A part of what was to follow the training: `what` is `eval`, `copy_to` or `push`.

    `place` is the address of what was done, `error` why it was not and `again` the command that
    repeats it.
    """

    what: str
    place: str = ""
    error: str = ""
    again: str = ""


@dataclass
class Story:
    """The history of a run; for a resumed run, the latest records count.

    Attributes:
        ended: Whether an end is on record.
        state: `finished` or `stopped`, or None without an end on record.
        reason: Why the run finished before its last step; None if it did not.
        length: Seconds from the first record to the last.
        spans: By launch, its first and its last record, in seconds since the run began.
        facts: The latest `start` record: precision, rows, versions and more.
        loss, learning_rate, tokens_per_second, eta_seconds: As of the last step, if they are known.
        slow_links: The links that hold up the exchange as of the last step; None without any.
        links: The steps at which a link became slow, or no link was slow any more.
        joules: Energy of all nodes so far, None if none is measured.
        disks: By node that writes no checkpoints now, the reason.
        disk_news: The changes of that.
        joules_at_end: By node, the part of it after the last step.
        scores: By task and metric, those of lm-eval before and after.
        shared: By kind and place, the parts that followed the training; of a kind that failed, the
            last failure, until one of that kind is done.
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
    facts: Mapping[str, Any] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    teams: list[Team] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    samples: dict[str, Sample] = field(default_factory=dict)
    example: TrainedExample | None = None
    checkpoints: list[Mark] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    skips: list[Mark] = field(default_factory=list)
    disks: dict[str, str] = field(default_factory=dict)
    disk_news: list[Mark] = field(default_factory=list)
    scores: dict[tuple[str, str], Score] = field(default_factory=dict)
    shared: dict[tuple[str, str], Shared] = field(default_factory=dict)

    @classmethod
    def from_lines(cls, lines: Iterable[Mapping[str, Any]]) -> Story:
        """Build the history from the lines of a `metrics.jsonl`."""
        story = cls()
        for line in lines:
            story.add(line)
        return story

    def explain(self, launches: Sequence[Mapping[str, Any]]) -> Story:
        """Take the reasons why nodes left from a supervisor's record; return this story.

        `launches` are as in `teams.explained`.
        """
        for number, team in enumerate(self.teams):
            earlier = self.teams[number - 1] if number else None
            same = earlier and earlier.launch == team.launch
            since = earlier.generation if same else self.launches[team.launch].generation
            self.teams[number] = explained(team, since, launches)
        return self

    def add(self, line: Mapping[str, Any]) -> None:
        """Add a line of a `metrics.jsonl`; a malformed one is skipped."""
        with suppress(LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError):
            self._add(line)

    @property
    def replans(self) -> list[Mark]:
        """Changes of the split of full batches, or of full rounds."""
        whole = max((sum(plan.rows) for plan in self.plans), default=0)
        full = [plan for plan in self.plans if sum(plan.rows) == whole]
        pairs = itertools.pairwise(full)
        return [now.mark for before, now in pairs if before.by_node != now.by_node]

    @property
    def present(self) -> tuple[str, ...]:
        """The nodes of the newest team; () before the first launch."""
        if teams := self._teams_of_launch:
            return teams[-1].nodes
        return self.launches[-1].present if self.launches else ()

    @property
    def absences(self) -> list[Absence]:
        """The times for which the run went on without one of its nodes, in order."""
        return absences(self.launches, self.teams)

    @property
    def away(self) -> dict[str, Absence]:
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
    def _teams_of_launch(self) -> list[Team]:
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
        return max((mark.step for mark in self.checkpoints), default=None)

    @property
    def perplexity(self) -> tuple[float | None, float | None]:
        """Held-out perplexity before and after training."""
        last = {each.when: each.perplexity for each in self.evaluations}
        return last.get("before"), last.get("after")

    @property
    def seconds(self) -> float:
        """Total duration of its launches, without the time between them."""
        return sum(last - first for first, last in self.spans)

    @property
    def worse(self) -> str | None:
        """The held-out loss that rose over the run, and what to change; None if it did not."""
        last = {each.when: HeldOut(each.loss, each.perplexity) for each in self.evaluations}
        return describe_worse(last.get("before"), last.get("after"))

    @property
    def sample(self) -> Sample | None:
        """The first question with answers both before and after training, or else the first one."""
        samples = list(self.samples.values())
        both = (each for each in samples if each.before is not None and each.after is not None)
        return next(both, samples[0] if samples else None)

    def _add(self, line: Mapping[str, Any]) -> None:
        at = self._at(line)
        if line["kind"] == "start" or not self.spans:
            self.spans.append([at, at])
        self.spans[-1][1] = at
        self.length = max(self.length, at)
        match line["kind"]:
            case "start":
                self.facts, self.steps, self.disks = line, line.get("steps", 0), {}
                self.slow_links = None
                present = tuple(str(rank["node"]) for rank in line.get("ranks", []))
                nodes = tuple(line.get("layout", present))
                generation, step = line.get("generation", 0), line.get("step", 0)
                began_with = tuple(dict.fromkeys(present))
                self.launches.append(Launch(generation, at, step, nodes, began_with))
            case "team":
                self._team(line, at)
            case "step":
                self.step, self.steps = line["step"], line.get("steps", self.steps)
                self.loss, self.eta_seconds = line.get("loss"), line.get("eta_seconds")
                self.tokens_per_second = line.get("tokens_per_second")
                self.learning_rate = line.get("learning_rate")
                self.joules = line.get("energy_joules")
                self._links(SlowLinks.from_record(line.get("slow_links")), at)
                self._window(line, at)
            case "plan":
                self._plan(line, at)
            case "evaluate":
                step = line.get("step", self.step)
                self.evaluations.append(
                    Evaluation(at, step, line["when"], line["perplexity"], line.get("loss"))
                )
            case "sample":
                self._sample(line)
            case "example":
                stretches = ((each["learned"], each["text"]) for each in line["stretches"])
                self.example = self.example or TrainedExample(line["source"], tuple(stretches))
            case "checkpoint":
                self.checkpoints.append(Mark(at, line["step"], f"checkpoint {line['step']}"))
            case "skip":
                rows = ", ".join(line["rows"]) or "no row by itself"
                self.skips.append(Mark(at, line["step"], f"not finite: {rows}"))
            case "disk":
                self._disks(line, at)
            case "scores":
                for score in from_records(line["scores"]):
                    self.scores[score.task, score.metric] = score
                self.shared.pop(("eval", ""), None)
            case "shared":
                told = (str(line.get(name, "")) for name in ("place", "error", "again"))
                part = Shared(line["what"], *told)
                self.shared.pop((part.what, ""), None)
                self.shared[part.what, part.place] = part
            case "end":
                self.ended = True
                self.step, self.state = line["step"], line.get("state")
                self.reason = line.get("reason")
                self._energy_at_end(line)

    def _at(self, line: Mapping[str, Any]) -> float:
        """Return the time of a line, in seconds since the run began."""
        if "time" not in line:
            return self.length
        time = datetime.fromisoformat(line["time"])
        self.began = self.began or time
        return (time - self.began).total_seconds()

    def _disks(self, line: Mapping[str, Any], at: float) -> None:
        """Process a `disk` line: all nodes that write no checkpoints from its step on."""
        before, self.disks = self.disks, dict(line.get("failing", {}))
        texts = [f"{node} writes no checkpoints ({why})" for node, why in self.disks.items()]
        texts += [f"{node} writes again" for node in before.keys() - self.disks.keys()]
        self.disk_news += [Mark(at, line["step"], text) for text in texts]

    def _team(self, line: Mapping[str, Any], at: float) -> None:
        """Process a `team` line; one before any launch tells nothing."""
        if not self.launches:
            return
        self.teams.append(
            Team(
                at,
                line["step"],
                len(self.launches) - 1,
                line.get("generation", 0),
                tuple(line["nodes"]),
                dict(line.get("left") or {}),
                tuple(line.get("joined") or ()),
                line.get("waited"),
            )
        )

    def _window(self, line: Mapping[str, Any], at: float) -> None:
        """Process a `step` line."""
        if not self.launches:  # the `start` line is lost
            ranks = tuple(f"rank {n}" for n in range(len(line["rows_by_rank"])))
            self.launches.append(Launch(0, 0.0, 0, ranks, ranks))
        since = self.window.step if self.window else self.launches[-1].step
        steps = line["step"] - since
        seconds = line["tokens"] / line["tokens_per_second"]
        columns = {
            "tokens": (sum, "tokens_per_second_by_rank", seconds),
            "rows": (sum, "rows_by_rank", 1),
            "compute_seconds": (fmean, "compute_seconds_by_rank", steps),
            "wait_seconds": (fmean, "wait_seconds_by_rank", steps),
            "peak_memory_mib": (max, "peak_memory_mib_by_rank", 1),
        }
        if not (steps > 0 and seconds > 0 and sum(line["rows_by_rank"]) > 0):
            return  # figures are means over these
        nodes = self.launches[-1].nodes
        unknown = [None] * len(nodes)
        temperatures = line.get("celsius_by_rank") or unknown
        energies = line.get("energy_joules_by_rank") or unknown
        work = {
            name: _by_node(nodes, [number * times for number in line[key]], together)
            for name, (together, key, times) in columns.items()
        } | {
            "celsius": _by_node(nodes, temperatures, warmest),
            "joules": _by_node(nodes, energies, sum_of_known),
        }
        parts = {
            node: NodeWork(**{name: numbers[node] for name, numbers in work.items()})
            for node in work["rows"]
            # One that has left within the window worked in its first steps.
            if node in self.present or work["tokens"][node]
        }
        launch, loss, team = len(self.launches) - 1, line.get("loss"), len(self._teams_of_launch)
        self.windows.append(Window(launch, line["step"], steps, at, seconds, loss, parts, team))

    def _links(self, slow: SlowLinks | None, at: float) -> None:
        """Process the slow links of a step, of which those that were slow before are no news."""
        before, self.slow_links = self.slow_links, slow
        if slow and not (before and before.hops == slow.hops):
            self.links.append(Mark(at, self.step, f"{slow.text}; {slow.advised}"))
        elif before and not slow:
            self.links.append(Mark(at, self.step, "no link holds up the exchange any more"))

    def _energy_at_end(self, line: Mapping[str, Any]) -> None:
        """Process the energy in an `end` line."""
        self.joules = line.get("energy_joules", self.joules)
        if by_rank := line.get("energy_joules_by_rank"):
            found = _by_node(self.launches[-1].nodes, by_rank, sum_of_known)
            self.joules_at_end = {node: each for node, each in found.items() if each is not None}

    def _plan(self, line: Mapping[str, Any], at: float) -> None:
        """Process a `plan` line."""
        nodes, rows = self.launches[-1].nodes, line.get("rows_of_round", line["rows"])
        if len(rows) == len(nodes):
            per = "round" if "rows_of_round" in line else "step"
            by_rank = nodes, tuple(map(int, rows)), tuple(line.get("slowness", ()))
            team = len(self.launches) - 1, len(self._teams_of_launch), self.present
            self.plans.append(Plan(at, line["step"], *team, per, *by_rank))

    def _sample(self, line: Mapping[str, Any]) -> None:
        """Process a `sample` line."""
        question = line["question"]
        had = self.samples.get(question, Sample(question))
        answers = {
            "before": had.before,
            "after": had.after,
            "expected": line.get("expected") or had.expected,
            line["when"]: line["answer"],
        }
        self.samples[question] = Sample(question, **answers)


def read_lines(metrics: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a `metrics.jsonl`; none if the file is missing."""
    try:
        text = metrics.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    yield from parse(text.splitlines())


def parse(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the records of these lines of a `metrics.jsonl`, skipping truncated and false ones."""
    for line in lines:
        with suppress(ValueError, RecursionError):
            record = json.loads(line)
            if "\\u" in line:
                json.dumps(
                    record, ensure_ascii=False
                ).encode()  # half of a surrogate pair is no text
            if is_sound(record):
                yield record


def _by_node(nodes: Sequence[str], by_rank: Sequence[Any], together: Any) -> dict[str, Any]:
    """Return one value per node by reducing the values of its ranks with `together`."""
    found: dict[str, list[Any]] = {}
    for node, number in zip(nodes, by_rank, strict=True):
        found.setdefault(node, []).append(number)
    return {node: together(numbers) for node, numbers in found.items()}
