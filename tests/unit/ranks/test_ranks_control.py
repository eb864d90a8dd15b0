"""A rank's side of its supervisor's socket: orders, interrupts, and the supervisor's death."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.supervisors import TRAINING
from support.waiting import HANG, until

from hearth.base.errors import LaunchError
from hearth.ranks.control import Control, connect, take_ranks_in_place
from hearth.ranks.control_protocol import (
    Doing,
    Form,
    Here,
    Interrupt,
    Leave,
    LoadAlone,
    Pause,
    RankEnded,
    Waiting,
    decode,
    encode,
    layout_text,
    listen_for_ranks,
)

NEW = Waiting("new", 0, 0, loaded=False)


class Supervisor:
    """The other end of a rank's socket."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(HANG)
        self.connection = connection
        self.lines = connection.makefile("rb")

    def order(self, *orders) -> None:
        self.connection.sendall(b"".join(map(encode, orders)))

    def hear(self):
        return decode(self.lines.readline())


@pytest.fixture
def both() -> Iterator[tuple[Supervisor, Control]]:
    theirs, own = socket.socketpair()
    supervisor, control = Supervisor(theirs), Control(own, ("tower", "laptop"))
    yield supervisor, control
    control.close()
    supervisor.lines.close()
    theirs.close()


def form(generation: int) -> Form:
    return Form(generation, ("tower",), "127.0.0.1", 1, ("127.0.0.1",), False)


def test_a_rank_waits_for_each_order_in_turn(both):
    supervisor, control = both
    supervisor.order(LoadAlone({"precision": "bf16"}), form(3), Leave(True))
    assert control.wait(NEW) == LoadAlone({"precision": "bf16"})
    assert supervisor.hear() == NEW
    assert control.wait(NEW) == form(3)
    assert control.wait(NEW) == Leave(True) == control.leaving


def test_an_interrupt_ends_its_group_and_all_before_it(both):
    supervisor, control = both
    interrupted = []
    control.on_interrupt = interrupted.append
    control.generation = 4
    supervisor.order(Interrupt(3, "late"), Interrupt(4, "laptop was lost"), Interrupt(2, "later"))
    supervisor.order(Leave(False))
    control.wait(NEW)
    assert interrupted == [Interrupt(4, "laptop was lost")]
    assert control.is_over(4) == control.is_over(3) == "laptop was lost"
    assert control.is_over(5) == ""


def test_the_order_to_form_a_group_ends_the_one_before(both):
    supervisor, control = both
    interrupted = []
    control.on_interrupt = interrupted.append
    control.generation = 4
    supervisor.order(Interrupt(2, "laptop was lost"), form(6))
    control.wait(NEW)
    assert len(interrupted) == 1
    assert control.reasons == {2: "laptop was lost"}
    assert control.is_over(4)
    assert not control.is_over(6)


def test_a_pause_is_of_one_group(both):
    supervisor, control = both
    assert not control.paused
    control.generation = 4
    supervisor.order(Pause(4), Leave(False))
    control.wait(NEW)
    assert control.paused
    control.generation = 5
    assert not control.paused


def test_a_rank_tells_what_it_does_and_how_it_ended(both):
    supervisor, control = both
    control.tell(Doing("micro-batch", 12, 3, 4.5))
    control.end("finished", 40)
    assert supervisor.hear() == Doing("micro-batch", 12, 3, 4.5)
    assert supervisor.hear() == RankEnded("finished", 40)
    assert supervisor.lines.readline() == b""


RANK = """
import sys, time
from hearth.ranks.control import connect
from hearth.ranks.control_protocol import Waiting
control = connect()
if sys.argv[1] == "waits":
    control.wait(Waiting("new", 0, 0, loaded=False))
time.sleep(600)
"""


@pytest.mark.parametrize("does", ["waits", "computes"])
@pytest.mark.parametrize("ending", [b"", b"rubbish\n"], ids=["dies", "is another program"])
def test_a_rank_ends_with_its_supervisor(tmp_path, does, ending):
    variables = os.environ | {
        "PYTHONPATH": str(TRAINING),
        "HEARTH_CONTROL": "1",
        "HEARTH_LAYOUT": layout_text((("tower", 2),)),
        "LOCAL_RANK": "1",
    }
    with listen_for_ranks(tmp_path) as listener:
        listener.settimeout(HANG)
        command = [sys.executable, "-c", RANK, does]
        rank = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.DEVNULL)
        try:
            supervisor = Supervisor(listener.accept()[0])
            assert supervisor.hear() == Here(1, rank.pid)
            if does == "waits":
                assert supervisor.hear() == NEW
            supervisor.connection.sendall(ending)
            supervisor.connection.shutdown(socket.SHUT_RDWR)
            assert rank.wait(HANG) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        finally:
            rank.kill()
            rank.wait()
        supervisor.lines.close()
        supervisor.connection.close()


def test_a_rank_without_a_supervisor_has_no_control(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert connect({}) is None
    with pytest.raises(LaunchError, match="does not answer"):
        connect({"HEARTH_CONTROL": "1", "HEARTH_LAYOUT": '[["tower",1]]'})
    with pytest.raises(LaunchError, match="HEARTH_LAYOUT"):
        connect({"HEARTH_CONTROL": "1"})


@pytest.fixture
def started(monkeypatch):
    """Set the environment of a local rank of two that torchrun has started on laptop."""
    for name in ("ASYNC_ERROR_HANDLING", "ENABLE_MONITORING", "DUMP_ON_TIMEOUT"):
        monkeypatch.setenv(f"TORCH_NCCL_{name}", "")
    monkeypatch.setenv("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "")
    for name, value in {
        "HEARTH_NODE": "laptop",
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)


def test_a_rank_takes_its_number_in_the_layout(started, monkeypatch):
    take_ranks_in_place()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("1", "2")
    monkeypatch.setenv("HEARTH_CONTROL", "1")
    monkeypatch.setenv("HEARTH_LAYOUT", '[["tower",1],["laptop",2],["attic",1]]')
    take_ranks_in_place()
    assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("2", "4")
    assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]) == ("1", "2")


@pytest.mark.parametrize("layout", ['[["tower",1]]', '[["tower",1],["laptop",1]]'])
def test_a_layout_that_does_not_fit_this_node_is_refused(started, monkeypatch, layout):
    monkeypatch.setenv("HEARTH_CONTROL", "1")
    monkeypatch.setenv("HEARTH_LAYOUT", layout)
    with pytest.raises(LaunchError, match="laptop started 2 ranks"):
        take_ranks_in_place()


def test_closing_leaves_no_thread_and_no_socket():
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
    theirs, own = socket.socketpair()
    Control(own).close()
    theirs.close()
    until(lambda: before == (len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))))
