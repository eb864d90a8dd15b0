"""The events of a run, a line of `metrics.jsonl` each: their types, their reader, their writing.

A new event is a dataclass here, written by `Telemetry.record`; with `news` every live view shows
it. Old runs lack some fields, newer ones have more, and a node's file can hold anything: a line of
an unknown kind becomes a `RunEvent`, a torn or malformed one is skipped.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,  # those of pydantic before Python 3.12
)

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from hearth.base.text import duration
from hearth.record.lines import METRICS, text_lines

Count = Annotated[int, Field(ge=0, le=10**15)]
Generation = Annotated[int, Field(ge=0, le=10**6)]
Number = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
Numbers = list[Number | None]


class PowerRecord(TypedDict):
    """The limit on the power of a rank's GPU, and its cost in speed."""

    limit: Number
    default: Number
    slower: Number | None
    measured: str | None


class RankRecord(TypedDict):
    """A rank that a launch began with."""

    node: str
    rank: NotRequired[Count]
    device: NotRequired[str]
    power: NotRequired[PowerRecord]


class AdviceRecord(TypedDict):
    """See `hearth.plan.slow_links.Advice`."""

    what: str
    tokens_per_second: Number | None


class LinksRecord(TypedDict):
    """See `hearth.plan.slow_links.SlowLinks`."""

    part: Number
    hops: list[tuple[str, str]]
    mbit: Number
    began: Number | None
    advice: list[AdviceRecord]


class StretchRecord(TypedDict):
    """A stretch of an example as it was trained, learned or only read."""

    learned: bool
    text: str


@dataclass(frozen=True)
class Score:
    """A metric of a task before and after the training, with standard errors.

    `before` is None where there was no model before. `higher` is whether more is better, `examples`
    the number of them.
    """

    task: str
    metric: str
    after: Number
    after_error: Number | None = None
    before: Number | None = None
    before_error: Number | None = None
    higher: bool = True
    examples: Count = 0

    @property
    def verdict(self) -> str:
        """`better`, `worse`, or `about the same`: a change within two standard errors."""
        if self.before is None:
            return ""
        change = (self.after - self.before) * (1 if self.higher else -1)
        errors = [each for each in (self.before_error, self.after_error) if each is not None]
        if not change or abs(change) <= 2 * math.hypot(*errors):
            return "about the same"
        return "better" if change > 0 else "worse"


@dataclass(kw_only=True)
class RunEvent:
    """An event after `step` steps; as such, one of a kind that this version does not know.

    Attributes:
        time: When it was recorded (ISO 8601); '' if unknown.
        when: `before`, `during` or `after` the training, for measurements at these times.
        at: Seconds since the run began, once it is part of a `Story`.
        launch, team: Then also the index of its launch, and the number of regroups of it so far.
    """

    alarm: ClassVar[bool] = False

    kind: str
    time: str = ""
    step: Count = 0
    when: str | None = None
    at: float = field(default=0.0, init=False, compare=False)
    launch: int = field(default=-1, init=False, compare=False)
    team: int = field(default=0, init=False, compare=False)

    @property
    def news(self) -> str:
        """The event in a line for people, '' for one that is no news."""
        return ""

    @property
    def line(self) -> str:
        """The event as a line of a record; fields that are None are left out."""
        return json.dumps(self.values(), allow_nan=False) + "\n"

    def values(self) -> dict[str, Any]:
        """Return the fields that are not None; NaN and infinity, which JSON lacks, become None."""
        given = {
            each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.init
        }
        return {name: _plain(value) for name, value in given.items() if value is not None}


@dataclass(kw_only=True)
class StartEvent(RunEvent):
    """A launch of the ranks after `step` steps.

    Attributes:
        ranks: Those that it began with.
        layout: By rank its node, also of ranks that were away.
        gradients: The carrier of the exchange.
    """

    kind: Literal["start"] = "start"
    run: str | None = None
    generation: Generation = 0
    world_size: Count | None = None
    layout: list[str] | None = None
    ranks: list[RankRecord] = field(default_factory=list)
    steps: Count = 0
    rows: Count | None = None
    tokens_per_epoch: Count | None = None
    trainable_parameters: Count | None = None
    versions: dict[str, str] = field(default_factory=dict)
    data: str | None = None
    model: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    gradients: str | None = None
    exchange_bytes: Count | None = None
    weight_bytes: Count | None = None
    weight_bytes_by_rank: list[Count] | None = None
    stages: list[dict[str, Any]] | None = None

    @property
    def alarm(self) -> bool:
        """Whether it follows a loss, as every launch but the first does."""
        return self.launch > 0

    @property
    def news(self) -> str:
        """The start of the ranks in a line."""
        again = f" again after step {self.step}" if self.alarm else ""
        return f"began{again} on {', '.join(self.present)}"

    @property
    def present(self) -> tuple[str, ...]:
        """The nodes that it began with."""
        return tuple(dict.fromkeys(rank["node"] for rank in self.ranks))

    @property
    def nodes(self) -> tuple[str, ...]:
        """By rank: its node, also of ranks that were away."""
        return (
            tuple(rank["node"] for rank in self.ranks) if self.layout is None else (*self.layout,)
        )


@dataclass(kw_only=True)
class TeamEvent(RunEvent):
    """A regroup after `step` steps: the nodes that train together from then on.

    Attributes:
        nodes: In order of rank.
        left: By node, why it is no longer in the team.
        joined: Nodes that were not in the team before.
        waited: Seconds that the others took no step; None if not recorded.
    """

    kind: Literal["team"] = "team"
    nodes: list[str]
    generation: Generation = 0
    left: dict[str, str] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    waited: Number | None = None

    @property
    def alarm(self) -> bool:
        """Whether a node left."""
        return bool(self.left)

    @property
    def changes(self) -> str:
        """The nodes that left, with the reasons, and those that joined."""
        changes = [f"{node} left ({first_line(why)})" for node, why in self.left.items()]
        changes += [f"{node} joined" for node in self.joined]
        return ", ".join(changes) or "the same nodes formed a new group"

    @property
    def news(self) -> str:
        """The regroup in one line."""
        waited = "" if self.waited is None else f" after {short_time(self.waited)}"
        return f"after step {self.step}: {self.changes}; {', '.join(self.nodes)} went on{waited}"


@dataclass(kw_only=True)
class PlanEvent(RunEvent):
    """A split of the rows from `step` on, of a step or of a round of local steps.

    Attributes:
        rows, micro_batch: By rank, of a step.
        rows_of_round: By rank, of a round.
        slowness: By rank, its current time as a multiple of the measured one.
    """

    kind: Literal["plan"] = "plan"
    step: Count
    rows: list[Count]
    micro_batch: list[Count | None] | None = None
    slowness: list[Number] = field(default_factory=list)
    rows_of_round: list[Count] | None = None

    @property
    def split(self) -> list[int]:
        """By rank: the rows of a round, or of a step where there are no rounds."""
        return self.rows if self.rows_of_round is None else self.rows_of_round


@dataclass(kw_only=True)
class StepEvent(RunEvent):
    """The steps since the last such line; `step` is the number of the last one.

    `own_tokens_per_second_by_rank` counts only the rank's computing time. Energies are in joules:
    of all nodes so far, and of each node by its first rank since the last line. Rewards and
    log-probabilities are means over the answers of preferences.
    """

    kind: Literal["step"] = "step"
    step: Count
    steps: Count | None = None
    loss: Number | None = None
    skipped: Count | None = None
    scaler_skipped: Count | None = None
    tokens: Number = 0
    tokens_per_second: Number | None = None
    tokens_per_second_by_rank: Numbers = field(default_factory=list)
    own_tokens_per_second_by_rank: Numbers | None = None
    busy_by_rank: Numbers | None = None
    compute_seconds_by_rank: Numbers = field(default_factory=list)
    wait_seconds_by_rank: Numbers = field(default_factory=list)
    peak_memory_mib_by_rank: Numbers = field(default_factory=list)
    celsius_by_rank: Numbers | None = None
    energy_joules_by_rank: Numbers | None = None
    rows_by_rank: list[Count] = field(default_factory=list)
    epoch: Number | None = None
    learning_rate: Number | None = None
    grad_norm: Number | None = None
    chosen_reward: Number | None = None
    rejected_reward: Number | None = None
    reward_accuracy: Number | None = None
    chosen_log_prob: Number | None = None
    rejected_log_prob: Number | None = None
    energy_joules: Number | None = None
    eta_seconds: Number | None = None
    slow_links: LinksRecord | None = None


@dataclass(kw_only=True)
class SkipEvent(RunEvent):
    """A step that was not taken, since the gradient of `rows` was not finite."""

    kind: Literal["skip"] = "skip"
    alarm: ClassVar[bool] = True
    rows: list[str] = field(default_factory=list)

    @property
    def cause(self) -> str:
        """The rows whose gradient was not finite."""
        return f"not finite: {', '.join(self.rows) or 'no row by itself'}"

    @property
    def news(self) -> str:
        """The step and its rows."""
        return f"step {self.step} skipped, {self.cause}"


@dataclass(kw_only=True)
class DriftEvent(RunEvent):
    """Replicas that differed from the leader's by up to `largest` of their size, and took its."""

    kind: Literal["drift"] = "drift"
    tensors: Count = 0
    largest: Number = 0.0
    nodes: list[str] = field(default_factory=list)

    @property
    def news(self) -> str:
        """The nodes and the size of the difference."""
        return (
            f"step {self.step}: {self.tensors} tensors on {', '.join(self.nodes)} had drifted by "
            f"up to {self.largest:.1g} of their size, and were taken from the leader"
        )


@dataclass(kw_only=True)
class DiskEvent(RunEvent):
    """All nodes that write no checkpoints from `step` on, with the reasons."""

    kind: Literal["disk"] = "disk"
    failing: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class EvaluateEvent(RunEvent):
    """An evaluation on held-out data; a number that was not finite is None.

    With preferences the perplexity is that of the chosen answers.
    """

    kind: Literal["evaluate"] = "evaluate"
    perplexity: Number | None = None
    loss: Number | None = None
    tokens: Count | None = None
    perplexity_by_set: dict[str, Number | None] | None = None
    chosen_reward: Number | None = None
    rejected_reward: Number | None = None
    reward_accuracy: Number | None = None
    chosen_log_prob: Number | None = None
    rejected_log_prob: Number | None = None

    @property
    def news(self) -> str:
        """The loss and the perplexity."""
        known = {
            "accuracy": self.reward_accuracy,
            "loss": self.loss,
            "perplexity": self.perplexity,
        }
        values = [f"{name} {value:.3f}" for name, value in known.items() if value is not None]
        return f"held out after step {self.step}: {', '.join(values) or 'no value'}"


@dataclass(kw_only=True)
class SampleEvent(RunEvent):
    """The model's answer to a held-out question, and the expected one.

    `base` is the answer without any adapter, of a run on top of one.
    """

    kind: Literal["sample"] = "sample"
    question: str
    answer: str
    base: str | None = None
    expected: str | None = None


@dataclass(kw_only=True)
class ExampleEvent(RunEvent):
    """One example as it was trained: its place in the data, and its texts, learned or not.

    Of preferences it has one answer: `side` is `chosen`, `rejected`, `preferred` or `to avoid`.
    """

    kind: Literal["example"] = "example"
    source: str
    stretches: list[StretchRecord]
    side: str = ""


@dataclass(kw_only=True)
class CheckpointEvent(RunEvent):
    """A checkpoint that the nodes wrote after `step` steps, in that many `seconds`."""

    kind: Literal["checkpoint"] = "checkpoint"
    step: Count
    path: str | None = None
    seconds: Number | None = None

    @property
    def news(self) -> str:
        """The step of the checkpoint."""
        return f"checkpoint at step {self.step}"


@dataclass(kw_only=True)
class EndEvent(RunEvent):
    """The end of a run: `state` is `finished` or `stopped`, `reason` why it finished early."""

    kind: Literal["end"] = "end"
    step: Count
    state: str | None = None
    reason: str | None = None
    exchanged_bytes: Count | None = None
    energy_joules: Number | None = None
    energy_joules_by_rank: Numbers | None = None
    adapter: str | None = None
    model: str | None = None

    @property
    def news(self) -> str:
        """The state and the reason."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.state} after step {self.step}{why}" if self.state else ""


@dataclass(kw_only=True)
class ScoresEvent(RunEvent):
    """The scores of lm-eval after the training; at most `limit` examples of each task."""

    kind: Literal["scores"] = "scores"
    scores: list[Score]
    limit: Number | None = None


@dataclass(kw_only=True)
class SharedEvent(RunEvent):
    """A part that follows the training: `what` is `eval`, `copy_to` or `push`.

    `place` is the address of the result, `error` the reason of a failure and `again` the command
    that repeats it.
    """

    kind: Literal["shared"] = "shared"
    what: str
    place: str | None = None
    private: bool | None = None
    error: str | None = None
    again: str | None = None


_KNOWN = TypeAdapter(
    Annotated[
        StartEvent
        | TeamEvent
        | PlanEvent
        | StepEvent
        | SkipEvent
        | DriftEvent
        | DiskEvent
        | EvaluateEvent
        | SampleEvent
        | ExampleEvent
        | CheckpointEvent
        | EndEvent
        | ScoresEvent
        | SharedEvent,
        Field(discriminator="kind"),
    ]
)
_ANY = TypeAdapter(RunEvent)


def event_in(line: str) -> RunEvent | None:
    """Return the event in a line of a record; None if no trainer can have written the line."""
    try:
        return _KNOWN.validate_json(line, strict=True)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "union_tag_invalid":
            return None
    except ValueError:  # bytes that are no text
        return None
    try:
        return _ANY.validate_json(line, strict=True)
    except ValidationError:
        return None


def parse(lines: Iterable[str]) -> Iterator[RunEvent]:
    """Yield the events in these lines of a record."""
    return (event for line in lines if (event := event_in(line)))


def read_events(folder: Path, skim: bool = False) -> Iterator[RunEvent]:
    """Yield the events of the run in `folder`; none if it has no record.

    With `skim`, steps that another step follows are left out.
    """
    return parse(text_lines(folder / METRICS, skim))


def first_line(why: str) -> str:
    """Return the first line of a reason, without terminal commands."""
    line = why.partition("\n")[0]
    return "".join(c if c.isprintable() else " " for c in line) or "no reason is on record"


def short_time(seconds: float) -> str:
    """Return a time in words, with tenths of a second while it is short."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: None for NaN and infinity, dataclasses as objects."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [dataclasses.asdict(each) if isinstance(each, Score) else each for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
