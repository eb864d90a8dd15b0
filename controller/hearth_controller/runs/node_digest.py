"""The fields of a node's digest of a run and their types: a node can hold and send anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hearth.base.places import RUN_NAME
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
    began: str = ""
    spans: list[Annotated[list[_Seconds], Field(min_length=2, max_length=2)]] = []
    lines: list[str] = []
    regroups: _Count = 0


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


def readable(digests: Iterable[Any]) -> Iterator[Digest]:
    """Yield the digests of a node without those that no module of Hearth can have made."""
    return (digest for digest in digests if not _misfit(digest))


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
