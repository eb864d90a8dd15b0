"""The fields of a node's digest of a run and their types: a node can hold and send anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hearth.base.places import RUN_NAME
from hearth.record.metric_line import is_sound
from hearth.supervisor.record import misfit

Digest = Mapping[str, Any]
"""The record of one run on one node."""

_Count = Annotated[int, Field(ge=0, le=10**18)]
_Seconds = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]


class _Job(BaseModel):
    model_config = ConfigDict(strict=True)
    job: str
    state: str
    reason: str


class _Turn(BaseModel):
    model_config = ConfigDict(strict=True)
    position: _Seconds = 0.0
    at: str | None = None
    submitted: str = ""


class _Checkpoint(BaseModel):
    model_config = ConfigDict(strict=True)
    step: _Count
    age_seconds: _Seconds


class _Metrics(BaseModel):
    model_config = ConfigDict(strict=True)
    began: str | None = None
    seconds: _Seconds | None = None
    elapsed: _Seconds | None = None
    regroups: _Count = 0
    teams: list[Any] = []


class _Digest(BaseModel):
    model_config = ConfigDict(strict=True)
    name: Annotated[str, Field(pattern=rf"^{RUN_NAME.pattern}$")]
    run_file: str
    record: dict[str, Any] | None
    alive: bool
    silent_seconds: _Seconds | None
    asked: str | None
    queue: _Job | None = None
    turn: _Turn | None = None
    metrics: _Metrics
    checkpoint: _Checkpoint | None
    curves: _Seconds | None
    files: dict[str, _Count]


def readable(digests: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the digests of a node without those that no module of Hearth can have made.

    Lines of their metrics that the trainer cannot have written are left out.
    """
    for digest in digests:
        if not _misfit(digest):
            yield {**digest, "metrics": _sound(digest["metrics"])}


def damage(nodes: Mapping[str, Iterable[Any] | None]) -> list[str]:
    """Return a sentence for each run of a node that is left out, or of which a file is damaged.

    `nodes` holds the digests of each queried node; None if it does not answer.
    """
    return [
        f"{node}: run {_name_of(digest)}: {what}; move the file away, or the run's folder"
        for node, digests in nodes.items()
        for digest in digests or ()
        for what in _damage_of(digest)
    ]


def _damage_of(digest: Any) -> list[str]:
    """Return a sentence for each damage of a run, told by its node or found in the digest."""
    known = digest.get("damaged", []) if isinstance(digest, Mapping) else []
    told = [str(each) for each in known] if isinstance(known, list) else []
    wrong = _misfit(digest)
    return told + ([f"its record cannot be used ({wrong})"] if wrong and not told else [])


def _name_of(digest: Any) -> str:
    return str(digest.get("name", "?")) if isinstance(digest, Mapping) else "?"


def _misfit(digest: Any) -> str:
    """Return which field of a digest has a type that it cannot have, or ''."""
    try:
        _Digest.model_validate(digest)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'digest'}: {first['msg']}"
    record = digest["record"]
    return "" if record is None else misfit(record)


def _sound(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node's metrics without lines that the trainer cannot have written."""
    others = _Metrics.model_fields.keys() & metrics.keys()
    lines = {name: line for name, line in metrics.items() if name not in others and is_sound(line)}
    teams = [line for line in metrics.get("teams", []) if is_sound(line)]
    return {name: metrics[name] for name in others} | lines | {"teams": teams}
