"""The end of a torchrun, as its log tells it."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest
from support.facts import assert_names
from support.repository import ROOT

from hearth.base.errors import MachineError
from hearth.ranks.control_protocol import RANK_APART
from hearth.ranks.memory import row_too_large, stage_too_large, too_large_together
from hearth.record.checkpoint import not_written
from hearth.supervisor import log as kernel
from hearth.supervisor.log import LaunchLog, kernel_said, kills_so_far, say, telling
from hearth.supervisor.spec import Spec

EMPTY = (ROOT / "tests" / "fixtures" / "torchrun" / "reply-empty.log").read_text()


@pytest.fixture
def spec(tmp_path) -> Spec:
    return Spec(
        run="evening",
        node="laptop",
        rank=0,
        nodes=("laptop",),
        addresses=("127.0.0.1",),
        nproc=1,
        python="/env/bin/python",
        workspace=tmp_path,
        token="secret-of-this-run-only",
        environment={},
    )


@pytest.mark.parametrize(("free", "facts"), [(0, ["full", "free some space"]), (1 << 30, [])])
def test_a_log_that_a_full_disk_kept_from_telling_why_says_so(spec, monkeypatch, free, facts):
    log = LaunchLog(spec)
    log.begin()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.write_text(EMPTY)
    usage = shutil.disk_usage(spec.workspace)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=free))
    message = log.failure(1, 0).message
    assert_names(message, "status 1", *facts, *([str(spec.log)] if facts else []))
    assert ("full" in message) == bool(facts)


@pytest.mark.parametrize(
    ("said", "status", "local"),
    [
        ("hearth: error: one row of 96 tokens does not fit into the memory", RANK_APART, True),
        ("hearth: error: the data has no such field", 2, False),
        ("Traceback (most recent call last):\nRuntimeError: CUDA error: unknown error", 1, True),
        ("Traceback (most recent call last):\nValueError: the row is bad", 1, False),
    ],
)
def test_an_error_of_the_machine_is_known_by_its_cause_or_by_the_ranks_own_word(
    spec, said, status, local
):
    log = LaunchLog(spec)
    log.begin()
    spec.log.parent.mkdir(parents=True, exist_ok=True)
    spec.log.write_text(
        f"{said}\n\nRoot Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n"
        f"  exitcode  : {status} (pid: 1)\n"
    )
    assert log.failure(1, 0).local == local


def test_errors_of_memory_and_disk_are_those_of_a_machine(tmp_path):
    full = not_written(tmp_path, "the checkpoint", OSError(28, "No space left on device"))
    for error in (row_too_large(96), too_large_together(4), stage_too_large("rank 1", 96), full):
        assert isinstance(error, MachineError)


def test_whatever_a_stranger_or_a_rank_says_the_log_takes_it_and_commands_no_terminal(spec, capfd):
    spec.log.parent.mkdir(parents=True)
    say(spec, "laptop left: \x1b[2Jgone\x07 \udce4 for\nnow")
    (line, more) = spec.log.read_text().splitlines()
    assert line.endswith("laptop left: gone  for")
    assert more.endswith("now")
    assert "\x1b" not in capfd.readouterr().err


KILLED = "Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB"
NOISE = ["usb 1-1: new high-speed USB device", "audit: type=1400 apparmor=ALLOWED"]


def said(kills_before: int | None = None) -> list[str]:
    before = kills_so_far() if kills_before is None else kills_before
    return asyncio.run(kernel_said(1_700_000_000.9, before))


def test_the_last_lines_that_tell_something_are_kept():
    xid = "NVRM: Xid (PCI:0000:02:00): 79, GPU has fallen off the bus."
    assert telling([*NOISE, KILLED, *NOISE, xid]) == [KILLED, xid]
    assert telling([f"{KILLED} {n}" for n in range(9)]) == [f"{KILLED} {n}" for n in range(4, 9)]
    assert telling([]) == []


def test_the_journal_is_asked_for_the_kernels_lines_since_the_launch(program, tmp_path):
    program("journalctl", f'echo "$@" > {tmp_path}/asked; echo "{NOISE[0]}"; echo "{KILLED}"')
    assert said() == [KILLED]
    asked = (tmp_path / "asked").read_text()
    assert "--since=@1700000000 " in asked
    assert "_TRANSPORT=kernel + SYSLOG_IDENTIFIER=systemd-oomd" in asked


def test_without_journalctl_or_the_right_to_read_it_there_is_nothing(
    tmp_path, monkeypatch, program
):
    program("journalctl", "echo 'No journal files were opened: permission' >&2; exit 1")
    assert said() == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said() == []


def test_a_journal_that_hangs_is_left_alone(program, monkeypatch):
    monkeypatch.setattr(kernel, "PATIENCE", 0.3)
    program("journalctl", "exec sleep 60")
    began = time.monotonic()
    assert said() == []
    assert time.monotonic() - began < 30


def test_kills_of_the_own_cgroup_are_counted(tmp_path):
    own = tmp_path / "cgroup"
    own.write_text("0::/user.slice/hearth.service\n")
    group = tmp_path / "user.slice" / "hearth.service"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\nhigh 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert kills_so_far(tmp_path, own) == 2
    assert kills_so_far(tmp_path / "nowhere", own) == 0
    (group / "memory.events").write_text("low 0\n")
    assert kills_so_far(tmp_path, own) == 0
    own.write_text("4:memory:/x\n")
    assert kills_so_far(tmp_path, own) == 0


def test_a_count_that_rose_tells_where_the_journal_is_silent(program):
    program("journalctl", "true")
    (line,) = said(kills_before=kills_so_far() - 1)
    assert_names(line, "oom-kill", "1")
    program("journalctl", f'echo "{KILLED}"')
    assert said(kills_before=kills_so_far() - 1) == [KILLED]
