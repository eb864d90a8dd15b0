"""Locks between the processes of several machines that share a folder, as over NFS."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time

import pytest
from filelock import Timeout

from hearth.base import locks
from hearth.base.locks import locked

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
