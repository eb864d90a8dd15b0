"""Runs that wait for their turn, as every program of a node knows them."""

from __future__ import annotations

import fcntl

from hearth.base.places import QUEUE
from hearth.base.waiting import is_in_queue, queued_runs


def test_a_run_waits_while_its_supervisor_holds_its_lock(tmp_path):
    assert queued_runs(tmp_path) == []
    assert not is_in_queue(tmp_path, "first")
    folder = tmp_path / QUEUE
    folder.mkdir()
    for run in ("second", "first", "killed"):
        (folder / f"{run}.lock").touch()
        (folder / f"{run}.json").write_text("{}")
    (folder / "just-begins.lock").touch()  # it has not written its place yet
    held = [(folder / f"{run}.lock").open() for run in ("second", "first", "just-begins")]
    for lock in held:
        fcntl.flock(lock, fcntl.LOCK_EX)
    assert queued_runs(str(tmp_path)) == ["first", "just-begins", "second"]
    assert is_in_queue(str(tmp_path), "just-begins")
    assert not is_in_queue(tmp_path, "killed")
    for lock in held:
        lock.close()
    assert queued_runs(tmp_path) == []
