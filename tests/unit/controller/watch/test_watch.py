"""Following a run on a node, over a real shell."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from hearth_controller.base.screen import Screen
from hearth_controller.watch.follow import Follower
from hearth_controller.watch.log import Log

SINCE = "2026-11-22T07:30:00Z"


def ask(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


class Lines(list):
    """Stands in for Ansible's display."""

    def display(self, text, **_):
        self.append(text.strip())


@pytest.fixture
def node(tmp_path):
    """A workspace with a space in its name, and what writes files into it."""
    workspace = tmp_path / "my node"

    def write(path, text):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text if isinstance(text, str) else json.dumps(text))

    return workspace, write


def record(state="running", pid=None, **more):
    return {"state": state, "pid": pid or os.getpid(), "rank": 0, "since": SINCE, **more}


def ended_process():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_metrics_of_rank_0_are_drawn_until_the_run_has_ended(node):
    workspace, write = node
    lines = Lines()
    follower = Follower("desk", "r1", str(workspace), ask, Screen(lines, live=False))
    assert follower.inspect()["state"] == "unknown"
    write("results/r1/supervisor.json", record())
    start, step = (
        json.dumps({"kind": kind, "time": SINCE, "steps": 10, "step": 5}) + "\n"
        for kind in ("start", "step")
    )
    earlier = step.replace("2026", "2025").replace("5}", "9}")
    write("results/r1/metrics.jsonl", earlier + start + step[:-9])
    assert follower.inspect() is None and not lines  # it is rank 0's, which is known from now on
    assert follower.inspect() is None
    assert lines == ["held-out evaluation before the first step"]
    write("results/r1/metrics.jsonl", earlier + start + step)
    assert follower.inspect() is None
    assert lines[1:] == ["step 5/10 · 0 tokens/s"]
    write("results/r1/supervisor.json", record("finished"))
    assert follower.inspect() == {"state": "finished", "cause": None}
    assert (follower.facts["rank"], follower.facts["since"]) == (0, SINCE)


@pytest.mark.parametrize(("unit", "probes"), [(False, 3), (True, 31)])
def test_a_supervisor_that_is_gone_is_given_up_after_some_probes(node, unit, probes):
    workspace, write = node
    write("results/r1/supervisor.json", record(pid=ended_process(), unit=unit))
    follower = Follower("desk", "r1", str(workspace), ask, Screen(Lines(), live=False))
    outcomes = [follower.inspect() for _ in range(probes + 1)]
    assert outcomes[:-1] == [None] * probes  # whether it lives is asked from the second on
    assert outcomes[-1]["gone"] and outcomes[-1]["state"] == "lost"


def test_a_silent_node_is_mentioned_once_and_then_given_up(monkeypatch):
    now, lines = [0.0], Lines()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    follower = Follower("desk", "r1", "w", ask, Screen(lines, live=False))
    for now[0] in (14, 16, 18, 100):
        assert follower.no_answer("no route\n", 100) is None
    assert lines == ["desk does not answer; still trying"]
    now[0] = 101
    why = "no answer for 1 min 41 s: no route"
    assert follower.no_answer("no route\n", 100) == {"state": "lost", "message": why}


def test_a_log_is_read_in_whole_lines_until_its_supervisor_is_gone(node):
    workspace, write = node
    log = Log(str(workspace), "r1", ask)
    assert log.last_lines(2) is None
    write("logs/r1.log", "one\ntwo\nthr")
    assert log.last_lines(2) == ["two", "thr"]
    write("results/r1/supervisor.json", record())
    write("logs/r1.log", "one\ntwo\nthree\nfo")
    assert log.new_lines() == ["ee"]
    write("logs/r1.log", "new\n")
    assert (log.new_lines(), log.new_lines()) == ([], ["new"])
    write("results/r1/supervisor.json", record("finished"))
    assert [(log.new_lines(), log.complete) for _ in range(3)][1:] == [([], False), ([], True)]
