"""The fields of a line of `metrics.jsonl` and their types: a file of a node can hold anything."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_Count = Annotated[int, Field(ge=0, le=10**15)]
_Generation = Annotated[int, Field(ge=0, le=10**6)]
_Number = Annotated[float, Field(ge=-1e30, le=1e30, allow_inf_nan=False)]
_Numbers = list[_Number | None]


class _Power(BaseModel):
    model_config = ConfigDict(strict=True)
    limit: _Number
    default: _Number
    slower: _Number | None
    measured: str | None


class _Rank(BaseModel):
    model_config = ConfigDict(strict=True)
    node: str
    rank: _Count = 0
    device: str = ""
    power: _Power = None


class _Score(BaseModel):
    model_config = ConfigDict(strict=True)
    task: str
    metric: str
    after: _Number
    after_error: _Number | None
    before: _Number | None
    before_error: _Number | None
    higher: bool
    examples: _Count


class _Advice(BaseModel):
    model_config = ConfigDict(strict=True)
    what: str
    tokens_per_second: _Number | None


class _SlowLinks(BaseModel):
    model_config = ConfigDict(strict=True)
    part: _Number
    hops: list[Annotated[list[str], Field(min_length=2, max_length=2)]]
    mbit: _Number
    began: _Number | None
    advice: list[_Advice]


class _Stretch(BaseModel):
    model_config = ConfigDict(strict=True)
    learned: bool
    text: str


class MetricLine(BaseModel):
    """The fields that are read, of lines of any kind."""

    model_config = ConfigDict(strict=True)
    kind: str
    time: str = None
    step: _Count = None
    steps: _Count = None
    # start
    generation: _Generation = None
    ranks: list[_Rank] = None
    layout: list[str] = None
    versions: dict[str, str] = None
    tokens_per_epoch: _Count | None = None
    trainable_parameters: _Count | None = None
    exchange_bytes: _Count | None = None
    data: str | None = None
    model: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    gradients: str | None = None
    # start, plan, skip
    rows: _Count | list[_Count] | list[str] = None
    rows_of_round: list[_Count] = None
    slowness: list[_Number] = None
    # team
    nodes: list[str] = None
    left: dict[str, str] = None
    joined: list[str] = None
    waited: _Number | None = None
    # disk
    failing: dict[str, str] = None
    # step
    tokens: _Number = None
    learning_rate: _Number | None = None
    eta_seconds: _Number | None = None
    tokens_per_second: _Number | None = None
    tokens_per_second_by_rank: _Numbers = None
    compute_seconds_by_rank: _Numbers = None
    wait_seconds_by_rank: _Numbers = None
    peak_memory_mib_by_rank: _Numbers = None
    celsius_by_rank: _Numbers | None = None
    rows_by_rank: list[_Count] = None
    slow_links: _SlowLinks = None
    # step, end
    energy_joules: _Number | None = None
    energy_joules_by_rank: _Numbers | None = None
    # step, evaluate, sample
    loss: _Number | None = None
    perplexity: _Number | None = None
    when: str = None
    question: str = None
    answer: str = None
    expected: str | None = None
    # example
    source: str = None
    stretches: list[_Stretch] = None
    # end
    state: str | None = None
    reason: str | None = None
    seconds: _Number | None = None
    # scores, shared
    scores: list[_Score] = None
    what: str = None
    place: str = None
    error: str = None
    again: str = None


def is_sound(line: Any) -> bool:
    """Return whether each field of a line has a type and a size that it can have."""
    try:
        MetricLine.model_validate(line)
    except ValidationError:
        return False
    return True
