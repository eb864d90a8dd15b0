"""Ctrl-C while Ansible plays: the person is told what goes on, and never shown a traceback."""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible.executor.process.worker import WorkerProcess
from ansible.executor.task_queue_manager import TaskQueueManager
from support.facts import assert_names
from support.plugins import PLUGINS, load
from support.programs import stand_in
from support.waiting import HANG, until

load("callback", "hearth")

PLAY = """
- hosts: localhost
  gather_facts: false
  tasks:
    - hearth_inventory:
    - hearth_run:
    - hearth_launch: {stage: start}
    - hearth_follow:
    - hearth_collect:
"""


def stand_ins(folder: Path, **waits: int) -> None:
    """Put modules there that only answer; one that `waits` says so first."""
    answers = {
        "hearth_inventory": '{"hearth": "hearth -i home"}',
        "hearth_run": '{"name": "night"}',
        **dict.fromkeys(("hearth_launch", "hearth_follow", "hearth_collect"), "{}"),
    }
    for name, answer in answers.items():
        waiting = f"sleep {waits.get(name, 0)}"
        stand_in(folder / "library" / name, f"touch {folder}/{name}; {waiting}; echo '{answer}'")


def played(folder: Path, **pipes) -> subprocess.Popen[str]:
    """Start the play."""
    (folder / "play.yml").write_text(PLAY)
    config = {
        "ANSIBLE_CALLBACK_PLUGINS": str(PLUGINS / "callback"),
        "ANSIBLE_STDOUT_CALLBACK": "hearth",
        "ANSIBLE_LIBRARY": "library",
        "ANSIBLE_HOME": str(folder / "home"),
    }
    return subprocess.Popen(
        ["ansible-playbook", *pipes.pop("words", ()), "play.yml"],
        cwd=folder,
        env=os.environ | config,
        stdout=subprocess.PIPE,
        text=True,
        **pipes,
    )


@pytest.mark.parametrize(
    ("during", "told"),
    [("hearth_launch", True), ("hearth_follow", True), ("hearth_collect", False)],
)
def test_control_c_names_the_run_that_goes_on_once_it_may_have_begun(tmp_path, during, told):
    stand_ins(tmp_path, **{during: 9})
    play = played(tmp_path, stderr=subprocess.STDOUT)
    with play:
        try:
            until((tmp_path / during).exists)
            play.send_signal(signal.SIGINT)
            screen, _ = play.communicate(timeout=HANG)
        finally:
            play.kill()
    assert play.returncode == 99
    assert "Traceback" not in screen
    assert "ERROR" not in screen
    if told:
        assert_names(screen, "night", "hearth -i home attach night")
        assert_names(screen, "hearth -i home stop night")
    else:
        assert "night" not in screen


@pytest.mark.parametrize("words", [(), ("-v",)])
@pytest.mark.parametrize(
    ("waits", "status"),
    [
        ({"hearth_run": 3, "hearth_follow": 9}, 99),
        ({"hearth_follow": 9}, 99),
        ({"hearth_collect": 3}, 0),
    ],
)
def test_a_reader_that_ends_stops_watching_and_nothing_else(tmp_path, waits, status, words):
    """`| head` ends before the run is started, while it is followed, or after it."""
    stand_ins(tmp_path, **waits)
    play = played(tmp_path, stderr=subprocess.PIPE, words=words)
    with play:
        try:
            until((tmp_path / next(iter(waits))).exists)
            play.stdout.close()
            assert play.wait(HANG) == status
            assert "Traceback" not in play.stderr.read()
        finally:
            play.kill()
    assert (tmp_path / "hearth_launch").exists()


def test_control_c_between_two_workers_is_an_interrupt_like_any_other():
    """Ansible closes a finished worker before it puts the next in its place."""
    worker = WorkerProcess.__new__(WorkerProcess)
    multiprocessing.process.BaseProcess.__init__(worker)
    worker.close()
    manager = SimpleNamespace(_workers=[worker])
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            TaskQueueManager._signal_handler(manager, signal.SIGINT, None)
    finally:
        signal.signal(signal.SIGINT, before)
    TaskQueueManager._cleanup_processes(manager)


STARTING = """
import multiprocessing.process, signal, time
from ansible.executor.process.worker import WorkerProcess
from support.plugins import load

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` leaves it ignored
load("callback", "hearth").CallbackModule()
multiprocessing.process.BaseProcess.start = lambda _: signal.raise_signal(signal.SIGINT)
try:
    WorkerProcess.__new__(WorkerProcess).start()
    print("started")
    time.sleep(20)
except KeyboardInterrupt:
    print("ended")
"""


def test_control_c_waits_until_a_worker_is_started(start):
    """An exception there is lost in a hook of fork, or comes out in the new worker."""
    assert start(STARTING).communicate(timeout=HANG)[0].split() == [
        "started",
        "interrupted",
        "ended",
    ]
