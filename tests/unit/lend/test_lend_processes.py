"""Processes of Hearth and of the owner, told apart; processor time is neither lost nor doubled."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.waiting import HANG, until

from hearth.base.places import SUPERVISED
from hearth.lend.processes import Process, Processes, used_by_others

PRINTS_ID_AND_WAITS = "import os; print(os.getpid(), flush=True); input()"


def pid_of(process: subprocess.Popen[str]) -> int:
    return int(process.stdout.readline())


# Busy long enough to count: the kernel counts processor time in hundredths of a second.
WORKS = f"import time\nwhile time.process_time() < 0.05: pass\n{PRINTS_ID_AND_WAITS}"

# A stranger: a session of its own whose parent is gone, as a person's program is to a supervisor.
STRANGER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {WORKS!r}], start_new_session=True)
"""


@pytest.fixture
def house():
    """The process that stands in for the supervisor: a table that knows it by its id alone."""
    child = subprocess.Popen(
        [sys.executable, "-c", STRANGER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield child
    child.communicate()
    child.wait(HANG)


def test_what_is_below_this_process_is_ours_and_a_strangers_program_is_not(house, start):
    own, stranger = pid_of(start(PRINTS_ID_AND_WAITS)), pid_of(house)
    house.wait(HANG)
    table = Processes().snapshot()
    assert table[os.getpid()].ours
    assert table[own].ours
    assert not table[stranger].ours
    assert table[stranger].seconds > 0


STAYS = """
import subprocess, sys
code = "import time; time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
print(child.pid, flush=True)
input()
"""


def test_a_process_stays_ours_when_its_parent_dies(start):
    """So does a rank whose torchrun was killed, wherever it then belongs."""
    parent, processes = start(STAYS), Processes()
    orphan = pid_of(parent)
    try:
        assert processes.snapshot()[orphan].ours
        parent.communicate("")
        table = processes.snapshot()
        assert table[orphan].parent != parent.pid
        assert table[orphan].ours
    finally:
        os.kill(orphan, signal.SIGKILL)


@pytest.mark.parametrize("mark", ["environment", "command"])
def test_what_another_supervisor_started_is_ours_also_below_a_strangers_shell(
    tmp_path, mark, house
):
    package = tmp_path / "hearth" / "other.py"
    package.parent.mkdir()
    package.write_text(PRINTS_ID_AND_WAITS)
    words = ["-m", "hearth.other"] if mark == "command" else ["-c", PRINTS_ID_AND_WAITS]
    variables = {SUPERVISED: "/elsewhere"} if mark == "environment" else {}
    code = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, *{words!r}], env=os.environ | {variables!r},
                 cwd={str(tmp_path)!r}, start_new_session=True)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        other, stranger = pid_of(parent), pid_of(house)
        parent.wait(HANG)
        house.wait(HANG)
        table = Processes().snapshot()
        assert table[other].ours
        assert not table[stranger].ours
    finally:
        parent.communicate()


def test_a_program_that_becomes_another_is_looked_at_again(tmp_path):
    """A shell forks before it executes a command of Hearth's."""
    (tmp_path / "go").unlink(missing_ok=True)
    code = f"""
import os, subprocess, sys
script = "until test -e go; do sleep 0.02; done; exec python-of-hearth -m hearth.x"
subprocess.Popen(["/bin/sh", "-c", script], cwd={str(tmp_path)!r}, start_new_session=True,
                 env=os.environ | {{"PATH": {str(tmp_path)!r} + ":" + os.environ["PATH"]}})
"""
    program = tmp_path / "python-of-hearth"
    program.symlink_to(sys.executable)
    (tmp_path / "hearth").mkdir()
    (tmp_path / "hearth" / "x.py").write_text(PRINTS_ID_AND_WAITS)
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        parent.wait(HANG)
        processes = Processes()
        processes.snapshot()
        (tmp_path / "go").touch()
        program_id = pid_of(parent)
        assert processes.snapshot()[program_id].ours
    finally:
        parent.communicate()


BURNS_IN_CHILDREN = """
import os, sys, time
for _ in range(3):
    if not os.fork():
        while time.process_time() < 0.5:
            pass
        os._exit(0)
    os.wait()
print("burnt", flush=True)
input()
"""


def test_the_time_of_children_that_have_ended_is_their_parents(start):
    burner = start(BURNS_IN_CHILDREN)
    assert burner.stdout.readline() == "burnt\n"
    assert Processes().snapshot()[burner.pid].seconds >= 1.4


def table(*rows: tuple[int, int, float, bool]) -> dict[int, Process]:
    """Return a table of processes by id, parent, seconds and whether they are ours."""
    return {
        pid: Process(parent, f"p{pid}", pid, seconds, ours) for pid, parent, seconds, ours in rows
    }


def test_others_time_is_counted_once_when_a_process_ends():
    before = table((1, 0, 5, False), (10, 1, 20, False))
    after = table((1, 0, 27, False))  # it waited for process 10, which took two seconds more
    assert used_by_others(before, after) == (2, "p1")


def test_the_busiest_program_is_named():
    before = table((1, 0, 5, False), (10, 1, 20, False), (11, 1, 0, False))
    after = table((1, 0, 5, False), (10, 1, 21, False), (11, 1, 3, False))
    assert used_by_others(before, after) == (4, "p11")


def test_another_run_that_ends_leaves_its_hours_to_nobody():
    """The user's systemd waits for a supervisor, and its time would jump by the whole run's."""
    before = table((1, 0, 5, False), (20, 1, 3600, True), (21, 20, 7200, True))
    after = table((1, 0, 10806, False))  # one second more of it was the run's
    assert used_by_others(before, after)[0] == pytest.approx(1)


def test_an_id_that_another_process_has_taken_is_another_process():
    before = {**table((1, 0, 5, False)), 20: Process(1, "rank", 100, 50, ours=True)}
    after = {**table((1, 0, 55, False)), 20: Process(1, "game", 900, 2, ours=False)}
    assert used_by_others(before, after) == (2, "game")


seconds = st.floats(0, 10)


@given(st.lists(st.tuples(seconds, seconds, st.booleans(), st.booleans()), max_size=8))
def test_the_seconds_of_the_house_are_those_that_it_used(history):
    """Each process is ours or not, uses some time, and may end, its time going to its parent."""
    before, after, expected, inherited = {}, {}, 0.0, 0.0
    for pid, (had, used, ours, ends) in enumerate(history, start=2):
        before[pid] = Process(1, f"p{pid}", pid, had, ours)
        if ends:
            inherited += had + (0 if ours else used)
        else:
            after[pid] = Process(1, f"p{pid}", pid, had + used, ours)
        expected += 0 if ours else used
    before[1] = Process(0, "init", 1, 3.0)
    after[1] = Process(0, "init", 1, 3.0 + inherited)
    assert used_by_others(before, after)[0] == pytest.approx(expected)


def test_every_visible_process_is_in_the_table():
    def complete() -> bool:
        there = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        return os.getpid() in Processes().snapshot().keys() <= there | {os.getpid()}

    until(complete)
