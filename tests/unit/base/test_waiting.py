"""Runs that wait for their turn, as every program of a node knows them."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from hearth.base.locks import held, is_held, is_in_queue, queued_runs
from hearth.base.places import QUEUE


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


@pytest.fixture
def no_file_locks(monkeypatch):
    """A file system that locks no files, as NFS without a lock daemon; folders are not its own."""
    flock = fcntl.flock

    def refuse(descriptor, kind) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        if stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        flock(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", refuse)


def test_a_supervisor_is_seen_where_files_cannot_be_locked(tmp_path, no_file_locks):
    (tmp_path / QUEUE).mkdir()
    path = tmp_path / QUEUE / "night.lock"
    assert not is_in_queue(tmp_path, "night")
    with held(path, 0) as ours, held(path, 0) as theirs:
        assert (ours, theirs) == (True, False)
        assert queued_runs(tmp_path) == ["night"]
    assert not is_held(path)
    with held(path, 0) as ours:
        assert ours


def test_a_lock_that_fails_in_another_way_is_an_error(tmp_path, monkeypatch):
    def fail(*_) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OSError, match="Input/output"), held(Path(tmp_path, "a.lock"), 0):
        pass
