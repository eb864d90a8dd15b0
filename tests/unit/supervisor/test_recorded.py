"""A supervisor's record as it is read: only one with fields of the right types counts."""

from __future__ import annotations

import json
import os
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.supervisor.cause import Cause
from hearth.supervisor.preflight import check
from hearth.supervisor.record import RunRecord, read_record
from hearth.supervisor.recorded import misfit, record_in
from hearth.supervisor.spec import record_file

CAUSE = Cause("laptop", 1, "rank_failed", "out of memory")
SOUND = asdict(RunRecord("evening", "desk", 0, 2, pid=1, cause=CAUSE, nodes=["desk"]))
READ = sorted({*SOUND} - {"unit"})

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


def repr_of(value):
    return repr(value)[:9]


def test_what_a_supervisor_writes_is_sound(tmp_path):
    record = RunRecord("evening", "desk", 0, 2, pid=1, cause=CAUSE)
    record.launch_ended(CAUSE)
    record.write(tmp_path / "supervisor.json")
    assert record_in(tmp_path / "supervisor.json") == asdict(record)


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("value", [[[]], {"a": []}, 10**400, True], ids=repr_of)
def test_a_field_of_another_type_makes_it_none(tmp_path, name, value):
    path = record_file(tmp_path, "evening")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(SOUND | {name: value}))
    assert misfit(SOUND | {name: value}).startswith(name)
    assert record_in(path) == {}
    with refuses(LaunchError, str(path)):
        read_record(tmp_path, "evening")
    assert check(tmp_path, "evening", "127.0.0.1", 0)["facts"]["generation"] == 0


@given(JSON)
def test_any_json_can_be_judged(value):
    assert isinstance(misfit(value), str)
    assert misfit(value) or set(value) >= {"state"}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"[" * 100_000, b"9" * 9999])
def test_a_file_of_anything_else_is_none(tmp_path, content):
    (tmp_path / "supervisor.json").write_bytes(content)
    assert record_in(tmp_path / "supervisor.json") == {}


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "supervisor.json")
    assert record_in(tmp_path / "supervisor.json") == {}
