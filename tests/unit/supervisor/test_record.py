"""The record is always whole, and the lock knows who holds the node."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.supervisor.cause import Cause
from hearth.supervisor.open_step import describe_open_step
from hearth.supervisor.preflight import check
from hearth.supervisor.record import (
    RunRecord,
    lock_holder,
    misfit,
    node_lock,
    read_record,
    record_in,
)
from hearth.supervisor.spec import record_file


def make_record(workspace, message: str = "") -> RunRecord:
    record_file(workspace, "r1").parent.mkdir(parents=True, exist_ok=True)
    cause = Cause("laptop", 1, "rank_failed", message)
    return RunRecord("r1", "desk", 0, 0, pid=1, cause=cause)


def test_a_reader_never_sees_a_torn_record(tmp_path):
    path = record_file(tmp_path, "r1")
    make_record(tmp_path).write(path)
    done = threading.Event()

    def write() -> None:
        for length in range(0, 200_000, 997):
            make_record(tmp_path, "x" * length).write(path)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set():
        assert json.loads(path.read_text())["cause"]["rank"] == 1
        reads += 1
    writer.join()
    assert reads > 10
    assert [file.name for file in path.parent.iterdir()] == ["supervisor.json"]


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = record_file(tmp_path, "r1")
    make_record(tmp_path, "old").write(path)
    path.with_name(f".{path.name}.{os.getpid()}").mkdir()  # in the way of the new one
    make_record(tmp_path, "new").write(path)
    assert read_record(tmp_path, "r1")["cause"]["message"] == "old"


def test_one_run_at_a_time_has_the_node(tmp_path):
    assert lock_holder(tmp_path) is None
    for run in ("r1", "r2"):
        with node_lock(tmp_path, run):
            assert lock_holder(tmp_path)["run"] == run
            facts = (f"'{run}'", f"process {os.getpid()}")
            with refuses(LaunchError, *facts), node_lock(tmp_path, "r3"):
                pass
        assert lock_holder(tmp_path) is None


def test_alive_means_that_a_supervisor_holds_the_node_for_this_run(tmp_path):
    make_record(tmp_path).write(record_file(tmp_path, "r1"))
    record = read_record(tmp_path, "r1")
    assert (record["alive"], record["since"][-1], record["heartbeat"][-1]) == (False, "Z", "Z")
    with node_lock(tmp_path, "another"):
        assert read_record(tmp_path, "r1")["alive"] is False
    with node_lock(tmp_path, "r1"):
        assert read_record(tmp_path, "r1")["alive"] is True


CAUSE = Cause("laptop", 1, "rank_failed", "out of memory")
SOUND = asdict(RunRecord("evening", "desk", 0, 2, pid=1, cause=CAUSE, nodes=["desk"]))

OPEN_STEP = {"step": 3, "seconds": 40, "waits_for": {}, "link": ["desk", "lap", 0.2]}
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


@pytest.mark.parametrize("name", sorted(SOUND))
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


@given(JSON)
def test_an_open_step_that_is_no_misfit_can_be_described(value):
    for step in (value, OPEN_STEP | {"link": value}, OPEN_STEP | {"waits_for": value}):
        assert misfit(SOUND | {"open_step": step}) or describe_open_step(step) is not None
    assert misfit(SOUND | {"open_step": OPEN_STEP}) == ""


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"[" * 100_000, b"9" * 9999])
def test_a_file_of_anything_else_is_none(tmp_path, content):
    (tmp_path / "supervisor.json").write_bytes(content)
    assert record_in(tmp_path / "supervisor.json") == {}


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "supervisor.json")
    assert record_in(tmp_path / "supervisor.json") == {}
