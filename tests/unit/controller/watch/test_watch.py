"""Following a run on a node, by a real process there."""

from __future__ import annotations

import json
import os
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from support.facts import assert_names, refuses
from support.metric_lines import slow_links, start_line, step_line, team_line, written
from support.programs import NOISE, login
from support.waiting import until

from hearth.base.files import write_whole
from hearth_controller.base.screen import Screen
from hearth_controller.watch import log as log_of_a_run
from hearth_controller.watch import node_stream
from hearth_controller.watch.board import Board
from hearth_controller.watch.follow import Follower
from hearth_controller.watch.log import Log

SINCE = "2026-11-22T07:30:00Z"
LOCAL = SimpleNamespace(transport="local")


class Lines(list):
    """Stands in for Ansible's display."""

    def display(self, text, **_):
        self.append(text.strip())


class Reported:
    """Stands in for a node: its changes, one list for each second."""

    silent, error = 0.0, "no route"

    def __init__(self, *changes):
        self.changes, self.answered = list(changes), time.monotonic()

    def read(self):
        return self.changes.pop(0) if self.changes else []


@pytest.fixture
def workspace(tmp_path):
    return tmp_path / "my node"


@pytest.fixture
def write(workspace):
    """Return a function that writes a file into the workspace."""

    def writing(path, text):
        path = workspace / path
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(text, str):  # metrics or log, which grow in place
            path.write_text(text)
        else:
            write_whole(path, json.dumps(text))

    return writing


@pytest.fixture
def stream(workspace, monkeypatch):
    """Return a function that opens a stream from the workspace; all are closed in the end."""
    opened = []
    quick = node_stream._PROGRAM
    for slow, fast in (
        ("_HEARTBEAT = 3.0", "_HEARTBEAT = 0.2"),
        ("_BETWEEN_QUERIES = 3.0", "_BETWEEN_QUERIES = 0.1"),
    ):
        assert slow in quick
        quick = quick.replace(slow, fast)
    monkeypatch.setattr(node_stream, "_PROGRAM", quick)
    monkeypatch.setattr(node_stream, "_WAIT", 0.05)

    def opening(connection=LOCAL, **files):
        where = (connection, sys.executable, "r1", str(workspace))
        opened.append(node_stream.NodeStream(*where, files, interval=0.05))
        return opened[-1]

    yield opening
    for each in opened:
        each.close()


def record(state="running", **more):
    times = {"began": SINCE, "since": SINCE}
    return {"state": state, "pid": os.getpid(), "rank": 0, **times, **more}


@pytest.fixture
def follow(tmp_path):
    """Return a function that makes a follower of a run, which shows its progress in `lines`."""

    def following(node, lines=None, patience=60, name="desk"):
        screen = Screen(Lines() if lines is None else lines, live=False)
        return Follower(name, "r1", node, screen, Board(tmp_path / "board", name), patience)

    return following


def changes_from(read):
    """Read until something is there."""
    found = []
    until(lambda: found or found.extend(read()) or found)
    return found


def outcome_of(follower):
    """Follow a run to its end."""
    outcomes = []
    until(lambda: outcomes.append(follower.inspect()) or outcomes[-1])
    return outcomes[-1]


def test_the_metrics_of_rank_0_are_drawn_until_the_run_has_ended(follow, write, stream):
    lines = Lines()
    follower = follow(stream(metrics=None), lines)
    begin = written(start_line("desk", time=SINCE))
    fifth = written(step_line(10, step=5, steps=10, time=SINCE))
    earlier = fifth.replace("2026", "2025")
    write("results/r1/metrics.jsonl", earlier + begin + fifth[:-9])
    write("results/r1/supervisor.json", record())

    def shown(count):
        assert follower.inspect() is None
        return len(lines) >= count

    until(lambda: shown(1))
    assert len(lines) == 1
    write("results/r1/metrics.jsonl", earlier + begin + fifth)
    until(lambda: shown(2))
    assert_names(lines[1], "step 5/10", "1.250", "10 tokens/s")
    write("results/r1/supervisor.json", record("finished"))
    assert outcome_of(follower) == {"state": "finished", "cause": None}
    assert (follower.facts["rank"], follower.facts["since"]) == (0, SINCE)


@pytest.mark.parametrize("ended", [SINCE, "2026-11-22T07:30:05Z"])
def test_the_last_steps_are_shown_although_they_come_with_the_end(follow, ended):
    lines = Lines()
    text = written(start_line("desk", time=SINCE), step_line(10, step=60, time=SINCE))
    metrics = {"place": [1, len(text)], "anew": True, "behind": False, "text": text}
    end = {"record": record("finished", since=ended), "alive": False, "metrics": metrics}
    assert follow(Reported([end]), lines).inspect() == {"state": "finished", "cause": None}
    assert_names("\n".join(lines), "step 60/60", "1.250")
    assert "saving" not in "\n".join(lines)


def test_a_job_that_waits_is_followed_and_is_stopped_once_it_is_cancelled(
    follow, write, stream, program, tmp_path
):
    queue, lines = tmp_path / "queue", Lines()
    queue.write_text("12|PENDING|Resources\n")
    program("squeue", f"cat {queue}")
    write("results/r1/supervisor.json", record("queued", run="r1", node="desk", job=""))
    follower = follow(stream(metrics=None), lines)
    until(lambda: follower.inspect() is None and lines)
    assert_names(lines[0], "12", "Resources")
    queue.write_text("12|CANCELLED|None\n")
    end = outcome_of(follower)
    assert (end["state"], end["cause"]["node"]) == ("stopped", "desk")
    assert_names(end["cause"]["message"], "12", "cancelled")


def test_a_run_of_an_earlier_version_is_shown_whose_record_does_not_say_when_it_began(follow):
    lines = Lines()
    text = written(start_line("desk", time=SINCE), step_line(10, step=60, time=SINCE))
    metrics = {"place": [1, len(text)], "anew": True, "behind": False, "text": text}
    old = {name: value for name, value in record("finished").items() if name != "began"}
    end = {"record": old, "alive": False, "metrics": metrics}
    assert follow(Reported([end]), lines).inspect() == {"state": "finished", "cause": None}
    assert_names("\n".join(lines), "step 60/60")


def metrics_of(*lines):
    text = written(*lines)
    return {"place": [1, len(text)], "anew": True, "behind": False, "text": text}


def test_the_end_of_a_run_is_told_once_all_of_its_metrics_are_here(follow):
    first, rest = (
        metrics_of(start_line("desk", time=SINCE)),
        metrics_of(step_line(10.0, time=SINCE)),
    )
    end = {"record": record("finished"), "alive": False, "metrics": first | {"behind": True}}
    slow = metrics_of(step_line(10.0, time=SINCE, step=11, slow_links=slow_links(("a", "b"))))
    more = [{"metrics": each | {"anew": False}} for each in (slow, rest)]
    lines = Lines()
    follower = follow(Reported([end], more), lines)
    assert follower.inspect() is None
    assert follower.inspect() == {"state": "finished", "cause": None}
    assert follower.facts["reached"] == {"generation": 0, "step": 12, "ended": False}
    assert not [line for line in lines if "a → b" in line]  # what is over is no news


def test_where_rank_0s_node_dies_the_follower_of_another_node_goes_on(follow, monkeypatch):
    now, lines = [1000.0], Lines()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    begin = start_line("desk", "laptop", time=SINCE)
    told = [
        {
            "record": record(rank=rank),
            "alive": True,
            "metrics": metrics_of(begin, step_line(10, 10, step=1, time=SINCE)),
        }
        for rank in (0, 1)
    ]
    first, second = Reported([told[0]]), Reported([told[1]])
    followers = [
        follow(first, lines, name="desk"),
        follow(second, lines, name="laptop"),
    ]
    assert [each.inspect() for each in followers] == [None, None]
    assert_names(lines.pop(), "step 1/60")
    assert not lines
    for step in range(2, 30):
        now[0] += 1
        second.answered, first.silent = now[0], first.silent + 1
        second.changes = [
            [{"metrics": metrics_of(begin, step_line(10, 10, step=step, time=SINCE))}]
        ]
        assert [each.inspect() for each in followers] == [None, None]
    assert_names("\n".join(lines), "desk does not answer", "step 24/60")
    # It comes back when it had been given up long ago, had not the other one answered.
    first.silent, second.answered = 400, now[0]
    assert followers[0].inspect() is None
    second.changes = [[{"record": record("finished", rank=1), "alive": False}]]
    assert followers[1].inspect()["state"] == "finished"
    assert followers[0].inspect()["state"] == "lost"


def test_a_node_that_has_come_back_shows_the_run_and_not_what_it_had_done_before(follow):
    lines = Lines()
    before = [start_line("desk", "laptop", time="2026-11-22T06:00:00Z")]
    before += [step_line(10, 10, step=7, time="2026-11-22T06:30:00Z")]
    back = {"kind": "team", "step": 9, "generation": 3, "time": SINCE}
    back["nodes"] = ["desk", "laptop"]
    change = {"record": record(), "alive": True, "metrics": metrics_of(*before)}
    node = Reported([change])
    follower = follow(node, lines)
    assert follower.inspect() is None
    assert_names(lines.pop(), "load the model")
    after = [*before, back, step_line(10, 10, step=10, time=SINCE)]
    follower = follow(Reported([change | {"metrics": metrics_of(*after)}]), lines)
    assert follower.inspect() is None
    assert_names(lines.pop(), "step 10/60", "desk", "laptop")


def test_a_regroup_is_told_once_by_whichever_follower_draws(follow, monkeypatch):
    now, lines = [1000.0], Lines()
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    begin = [start_line("desk", "laptop", time=SINCE), step_line(10, 10, step=1, time=SINCE)]
    told = {"alive": True, "metrics": metrics_of(*begin)}
    first = Reported([told | {"record": record(rank=0)}])
    second = Reported([told | {"record": record(rank=1)}])
    followers = [follow(first, lines, name="desk"), follow(second, lines, name="laptop")]
    assert [each.inspect() for each in followers] == [None, None]
    team = {"generation": 1, "left": {"desk": "broke off"}, "waited": 0.4, "time": SINCE}
    gone = team_line(1, "laptop", **team)
    second.changes = [[{"metrics": metrics_of(*begin, gone)}]]
    for _ in range(20):
        now[0] += 1
        second.answered, first.silent = now[0], first.silent + 1
        assert [each.inspect() for each in followers] == [None, None]
    said = "after step 1: desk left (broke off); laptop went on after 0.4 s"
    assert lines.count(said) == 1
    back = team_line(9, "desk", "laptop", generation=2, joined=["desk"], time=SINCE)
    for node in (first, second):
        node.silent, node.answered = 0, now[0]
        node.changes = [[{"metrics": metrics_of(*begin, gone, back)}]]
    for _ in range(20):
        now[0] += 1
        first.answered = second.answered = now[0]
        assert [each.inspect() for each in followers] == [None, None]
    assert lines.count(said) == 1
    assert sum("desk joined" in line for line in lines) == 1


def test_how_far_the_metrics_of_a_node_reach_is_known_at_its_end(follow, write, stream):
    lines = [start_line("desk", time=SINCE), step_line(10, step=60, time=SINCE)]
    write("results/r1/metrics.jsonl", written(*lines, {"kind": "end", "step": 60}))
    write("results/r1/supervisor.json", record("finished", rank=2))
    follower = follow(stream(metrics=None))
    outcome_of(follower)
    reached = {"generation": 0, "step": 60, "ended": True}
    assert follower.facts["reached"] == reached


def test_a_run_that_was_never_started_there_is_unknown(follow, stream):
    assert outcome_of(follow(stream(metrics=None)))["state"] == "unknown"


def test_only_changes_come_and_signs_of_life(write, stream):
    write("results/r1/supervisor.json", record(heartbeat="1"))
    opened = stream(metrics=None, log=5)
    (first,) = changes_from(opened.read)
    assert first["alive"] and first["record"] == record()
    assert first["metrics"] is first["log"] is None
    write("results/r1/supervisor.json", record(heartbeat="2"))
    assert changes_from(opened.read) == [{}]
    write("logs/r1.log", "é" * 20_000)  # more than is sent at once, which cuts one in two
    text = ""
    while len(text) < 20_000:
        text += "".join(change["log"]["text"] for change in changes_from(opened.read) if change)
    assert text == "é" * 20_000
    write("results/r1/supervisor.json", record(rank=1))
    while not any(changes_from(opened.read)):  # a sign of life may have been on its way
        pass
    write("results/r1/metrics.jsonl", "{}\n")  # every node may be the one that goes on
    change: dict = {}
    while not change:
        (change,) = changes_from(opened.read)
    assert change["metrics"]["text"] == "{}\n"


@pytest.mark.parametrize("how", ["reader killed", "closed", "reader hangs"])
def test_the_process_on_the_node_ends_with_its_reader(workspace, write, start, how):
    write("results/r1/supervisor.json", record())
    program = (
        "import sys; from types import SimpleNamespace as S\n"
        "from hearth_controller.watch import node_stream as module\n"
        "module._PROGRAM = module._PROGRAM.replace('_TIMEOUT = 60', '_TIMEOUT = 2')\n"
        "stream = module.NodeStream(S(transport='local'), sys.executable, 'r1', sys.argv[1],\n"
        "    {'metrics': None}, 0.05)\n"
        "while not stream.read(): pass\n"
        "print(stream._program.process.pid, flush=True)\n"
        "sys.stdin.readline(); stream.close(); sys.stdin.readline()"
    )
    reader = start(program, workspace)
    streamer = psutil.Process(int(reader.stdout.readline()))
    if how == "reader killed":
        reader.kill()
    elif how == "closed":
        reader.stdin.write("close\n")
        reader.stdin.flush()
    until(lambda: not streamer.is_running() or streamer.status() == psutil.STATUS_ZOMBIE, 10)


def test_a_connection_that_breaks_is_made_anew_and_goes_on_where_it_was(write, stream):
    write("results/r1/supervisor.json", record())
    write("logs/r1.log", "one\ntwo\n")
    log = Log(opened := stream(log=1))
    assert log.last_lines() == ["two"]
    opened._program.process.kill()
    write("logs/r1.log", "one\ntwo\nthree\n")
    assert changes_from(log.new_lines) == ["three"]
    assert opened.error == "the connection was closed"


@pytest.mark.parametrize("bashrc", NOISE)
def test_a_run_is_followed_whatever_the_login_shell_prints(follow, write, stream, tmp_path, bashrc):
    write("results/r1/supervisor.json", record("finished"))
    opened = stream(login(tmp_path, bashrc), metrics=None)
    assert outcome_of(follow(opened)) == {"state": "finished", "cause": None}
    assert opened.error == ""


def test_a_node_that_comes_back_has_time_to_log_in(follow, write, stream, tmp_path):
    write("results/r1/supervisor.json", record("finished"))
    opened = stream(login(tmp_path, "sleep 0.5"), metrics=None)
    opened.answered -= 100
    assert outcome_of(follow(opened, patience=105))["state"] == "finished"


@pytest.mark.parametrize("bashrc", ["exit", "echo welcome; exit 1"])
def test_a_login_shell_that_ends_is_no_answer_and_is_named(follow, write, stream, tmp_path, bashrc):
    follower = follow(stream(login(tmp_path, bashrc), metrics=None), patience=0.3)
    assert_names(outcome_of(follower)["message"], "no answer", ".bashrc")


def test_a_node_without_an_answer_says_why():
    connection = SimpleNamespace(transport="ssh", get_option=lambda _: "", exec_command=None)
    connection._build_command = lambda *_: [b"", b"-c", b"x"]
    stream = node_stream.NodeStream(connection, "python3", "r1", "w", {"log": 5})
    with pytest.raises(ConnectionError):
        Log(stream).last_lines()


@pytest.mark.parametrize(("unit", "seconds"), [(None, 2), ("hearth-r1.service", 30)])
def test_a_supervisor_that_is_gone_is_given_up_after_a_while(follow, unit, seconds, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    gone = {"record": record(unit=unit), "alive": False}
    node = Reported([gone])
    follower = follow(node)
    assert follower.inspect() is None
    node.answered = now[0] = seconds - 0.5
    assert follower.inspect() is None
    now[0] = seconds + 100  # the machine restarts: that is no time without a supervisor
    assert follower.inspect() is None
    node.changes = [[gone]]
    node.answered = now[0]
    assert follower.inspect() is None
    node.answered = now[0] = now[0] + seconds + 0.5
    outcome = follower.inspect()
    assert outcome["gone"] and outcome["state"] == "lost"


def test_a_silent_node_is_mentioned_once_and_then_given_up(follow):
    lines, node = Lines(), Reported()
    follower = follow(node, lines, patience=100)
    for node.silent in (14, 16, 18, 100):
        assert follower.inspect() is None
    (mentioned,) = lines
    assert_names(mentioned, "desk")
    node.changes, node.silent = [[{}]], 0
    assert follower.inspect() is None
    assert_names(lines[1], "desk")
    node.silent = 101
    outcome = follower.inspect()
    assert outcome["state"] == "lost"
    assert_names(outcome["message"], "1 min 41 s", "no route")


def test_a_log_is_read_in_whole_lines_until_its_supervisor_is_gone(write, stream, monkeypatch):
    monkeypatch.setattr(log_of_a_run, "_QUIET", 0.3)
    assert Log(stream(log=2)).last_lines() is None
    write("logs/r1.log", "one\ntwo\nthr")
    write("results/r1/supervisor.json", record())
    log = Log(stream(log=2))
    assert log.last_lines() == ["two", "thr"]
    write("logs/r1.log", "one\ntwo\nthree\nfo")
    assert changes_from(log.new_lines) == ["ee"]
    write("logs/r1.log", "new\n")
    assert changes_from(log.new_lines) == ["new"]
    write("results/r1/supervisor.json", record("finished"))
    began = time.monotonic()
    until(lambda: log.new_lines() or log.complete)
    assert log.complete and time.monotonic() - began > 0.3


@pytest.mark.parametrize(("silent", "given_up"), [(150, False), (200, True)])
def test_a_log_is_followed_beyond_a_network_that_is_away_for_a_moment(silent, given_up):
    node = Reported([{"record": record(), "alive": True, "log": None}])
    log = Log(node)
    assert log.last_lines() is None
    node.silent = silent
    if given_up:
        with refuses(ConnectionError, "no route"):
            log.new_lines()
    else:
        assert log.new_lines() == []


def test_a_line_without_end_is_given_up(monkeypatch, tmp_path):
    endless = "import sys\nwhile True: sys.stdout.write('{' * 100_000)"
    monkeypatch.setattr(node_stream, "_PROGRAM", endless)
    stream = node_stream.NodeStream(LOCAL, sys.executable, "r1", str(tmp_path), {"log": 1})
    until(lambda: stream.read() == [] and stream.error)
    assert_names(stream.error, "line")
    stream.close()
