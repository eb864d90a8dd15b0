"""The record is always whole, and the lock knows who holds the node."""

from __future__ import annotations

import json
import os
import threading

from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.supervisor.cause import Cause
from hearth.supervisor.record import RunRecord, lock_holder, node_lock, read_record
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
