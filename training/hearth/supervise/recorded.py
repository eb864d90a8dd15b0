"""A supervisor's record as it is read: the file, or the node that sends it, can hold anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hearth.base.files import read_object
from hearth.supervise.cause import Kind, State

_Generation = Annotated[int, Field(ge=-1, le=10**6)]
_Number = Annotated[int, Field(ge=-(2**31), lt=2**31)]
_Rank = Annotated[int, Field(ge=0, le=10**6)]


class _Cause(BaseModel):
    model_config = ConfigDict(strict=True)
    node: str
    rank: _Rank | None
    kind: Kind
    message: str


class _Launch(BaseModel):
    model_config = ConfigDict(strict=True)
    generation: _Generation
    ended: str
    cause: _Cause | None


class _Record(BaseModel):
    """The fields of a `RunRecord`; records of earlier versions lack some."""

    model_config = ConfigDict(strict=True)
    state: State
    run: str = ""
    node: str = ""
    rank: _Rank | None = None
    generation: _Generation | None = None
    since: str = ""
    missing: list[str] = []
    cause: _Cause | None = None
    nodes: list[str] = []
    script: str = ""
    job: str | None = None
    away: str = ""
    launches: list[_Launch] = []
    began: str = ""
    heartbeat: str = ""
    pid: _Number | None = None
    command: list[str] = []
    exit_code: _Number | None = None


def misfit(record: Any) -> str:
    """Return which field of a record is missing or has a type that it cannot have, or ''."""
    try:
        _Record.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    return ""


def record_in(path: Path) -> dict[str, Any]:
    """Return the record in a file; {} if there is none, or a field has a type that it cannot."""
    record = read_object(path) or {}
    return {} if misfit({"state": "waiting", **record}) else record
