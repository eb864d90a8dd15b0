"""Locks between processes and machines, and the runs that wait for their turn."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import Timeout

from hearth.base import locks
from hearth.base.locks import held, is_held, is_in_queue, locked, queued_runs
from hearth.base.places import QUEUE

LEASE = 1.0

# Another machine: a lock of the kernel does not reach it (mounted with nolock) or is refused.
HOLDER = """
import errno, fcntl, os, socket, sys, time
from pathlib import Path
path, host, kernel, lease, seconds = sys.argv[1:]
def flock(*_):
    if kernel == "refused":
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
fcntl.flock = flock
socket.gethostname = lambda: host
from hearth.base import locks
locks.LEASE = float(lease)
with locks.locked(Path(path), print, "waits"):
    print("has it", flush=True)
    time.sleep(float(seconds))
"""


@pytest.fixture(params=["refused", "of one machine"])
def holder(request, tmp_path, monkeypatch):
    """Return a function that starts a process which holds the lock for some seconds."""
    kernel = request.param
    monkeypatch.setattr(locks, "LEASE", LEASE)
    if kernel == "refused":

        def refuse(*_) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", refuse)

    def start(host: str, seconds: float) -> subprocess.Popen[str]:
        words = [tmp_path / "m.lock", host, kernel, LEASE, seconds]
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, *map(str, words)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "has it\n"
        return process

    return start


def test_one_machine_waits_for_another_one_that_is_still_at_work(holder, tmp_path):
    said: list[str] = []
    with holder("tower", 2.5 * LEASE) as other, locked(tmp_path / "m.lock", said.append, "waits"):
        assert other.wait(1) == 0  # its lease was renewed until then
    assert said == ["waits"]
    assert not [*tmp_path.glob("*.lease*")]


def test_patience_ends(holder, tmp_path):
    with (
        holder("tower", LEASE),
        pytest.raises(Timeout),
        locked(tmp_path / "m.lock", print, "waits", 0.1),
    ):
        pass


def test_the_lock_of_a_machine_that_was_lost_is_free_again(holder, tmp_path):
    with holder("tower", 60) as other:
        other.send_signal(signal.SIGKILL)
    began = time.monotonic()
    with locked(tmp_path / "m.lock", print, "waits"):
        assert time.monotonic() - began > LEASE / 2
    assert time.monotonic() - began < 10 * LEASE


def test_a_lock_file_of_an_earlier_version_is_free(tmp_path):
    (tmp_path / "m.lock").touch()
    with locked(tmp_path / "m.lock", print, "waits", 0):
        pass


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
