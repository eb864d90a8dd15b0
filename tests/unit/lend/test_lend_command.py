"""A person's lend_command: real shell commands that say yes, no, too much, or nothing in time."""

from __future__ import annotations

import os
import threading
import time

import psutil
import pytest
from support.waiting import HANG, until

from hearth.base.aside import pids_aside
from hearth.lend import command
from hearth.lend.command import Command, answer


def test_exit_status_0_lends_and_another_says_why_not(tmp_path):
    assert answer("exit 0", tmp_path) == (0, "")
    assert answer("echo yes; exit 0", tmp_path) == (0, "")
    assert answer("echo; echo '  the film is on '; echo more; exit 1", tmp_path) == (
        1,
        "the film is on",
    )
    assert answer("exit 3", tmp_path) == (3, "lend_command says no (exit status 3)")
    assert answer("! true", tmp_path)[0] == 1


def test_it_runs_in_the_workspace_without_tokens_and_variables_of_a_launch(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("HEARTH_NOTIFY", "ntfy://secret")
    said = answer("pwd; env > seen; exit 1", tmp_path)[1]
    assert said == str(tmp_path)
    assert "secret" not in (tmp_path / "seen").read_text()
    assert f"HOME={os.environ['HOME']}" in (tmp_path / "seen").read_text()


def test_a_missing_program_cannot_be_run(tmp_path):
    status, reason = answer("no-such-program --at-all", tmp_path)
    assert status == 127
    assert reason.startswith("lend_command cannot be run: ")
    assert "no-such-program" in reason


def test_one_that_hangs_says_no_and_is_ended_with_all_that_it_started(tmp_path):
    hangs = "sleep 600 & echo $! > child; trap '' TERM; wait"
    began = time.monotonic()
    assert answer(hangs, tmp_path, timeout=1) == (
        124,
        "lend_command did not answer within 1 s",
    )
    assert time.monotonic() - began < 60
    child = int((tmp_path / "child").read_text())
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_what_it_leaves_in_the_background_is_ended_and_not_waited_for(tmp_path):
    began = time.monotonic()
    assert answer("sleep 600 & echo $! > child; exit 0", tmp_path, timeout=300) == (0, "")
    assert time.monotonic() - began < 200
    child = int((tmp_path / "child").read_text())
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie")


def test_endless_output_is_read_and_not_kept(tmp_path):
    status, reason = answer(
        "head -c 30000000 /dev/zero | tr '\\0' x; exit 1", tmp_path, timeout=300
    )
    assert status == 1
    assert reason == "x" * 120
    status, reason = answer("yes", tmp_path, timeout=1)
    assert (status, reason) == (124, "lend_command did not answer within 1 s")


def test_its_output_cannot_command_a_terminal(tmp_path):
    assert answer(r"printf '\033[2Jno\a\n'; exit 1", tmp_path)[1] == "no"


def test_the_first_answer_is_waited_for_and_later_ones_replace_it(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "EVERY", 0.05)
    sensor = Command("test -e free || { echo not yet; exit 1; }", tmp_path)
    try:
        assert sensor.reason() == "not yet"
        (tmp_path / "free").touch()
        until(lambda: sensor.reason() == "")
        (tmp_path / "free").unlink()
        until(lambda: sensor.reason() == "not yet")
    finally:
        sensor.close()
    until(lambda: not pids_aside())


def test_a_command_that_cannot_be_started_says_no(tmp_path):
    sensor = Command("true", tmp_path / "gone")
    sensor.close()
    assert sensor.reason().startswith("lend_command cannot be started: ")


def test_an_error_of_any_kind_says_no_by_name_and_the_command_is_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "EVERY", 0.05)
    errors = [RuntimeError("can't start new thread")]

    def fails(*_: object) -> tuple[int, str]:
        for error in errors:
            raise error
        return 0, ""

    monkeypatch.setattr(command, "answer", fails)
    sensor = Command("true", tmp_path)
    try:
        said = "lend_command cannot be run: RuntimeError: can't start new thread"
        assert sensor.reason() == said
        errors.clear()
        until(lambda: sensor.reason() == "")
    finally:
        sensor.close()


@pytest.mark.parametrize("first", [True, False])
def test_an_answer_that_does_not_come_says_no_after_a_while(tmp_path, monkeypatch, first):
    monkeypatch.setattr(command, "EVERY", 0.05)
    monkeypatch.setattr(command, "LATE", 0.5)
    answers, hangs = iter([] if first else [(0, "")]), threading.Event()
    monkeypatch.setattr(command, "answer", lambda *_: next(answers, None) or hangs.wait(HANG))
    sensor = Command("true", tmp_path)
    try:
        until(lambda: sensor.reason() == "lend_command has not answered for more than 0.5 s")
    finally:
        sensor.close()
        hangs.set()


CLEARS_RANKS_AWAY = """
import asyncio, sys, time
from pathlib import Path
from hearth.lend.command import Command
from hearth.supervisor.workers import Workers

folder = Path(sys.argv[1])
wait = "until test -e end; do sleep 0.02; done"
sensor = Command(f"touch began; {wait}; echo seen; exit 1", folder)
while not (folder / "began").exists():
    time.sleep(0.02)
asyncio.run(Workers(None).kill())
(folder / "end").touch()
print(sensor.reason())
"""


def test_clearing_ranks_away_spares_it(tmp_path, start):
    """A supervisor ends and reaps its descendants, in case it is a rank without torchrun."""
    assert start(CLEARS_RANKS_AWAY, tmp_path).communicate(timeout=HANG)[0] == "seen\n"


@pytest.fixture(autouse=True)
def nothing_left():
    yield
    assert not pids_aside()
