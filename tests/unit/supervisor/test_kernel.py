"""Selection of lines from the kernel's log; journalctl is a stand-in here."""

from __future__ import annotations

import asyncio
import time

from support.facts import assert_names

from hearth.supervisor import kernel
from hearth.supervisor.kernel import kernel_said, kills_so_far, telling

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
