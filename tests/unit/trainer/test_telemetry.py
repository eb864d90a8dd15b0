"""The record of a run on the nodes that keep it, and the boards of the one that leads."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from hearth.config import resolve_run
from hearth.record.events import EvaluateEvent, StepEvent
from hearth.trainer import online
from hearth.trainer.in_place import Parting
from hearth.trainer.telemetry import Telemetry


@pytest.fixture
def run(tmp_path):
    return resolve_run({"model": "smollm2-135m", "wandb": "off"}, tmp_path)


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def boards(folder):
    return len(list((folder / "tensorboard").glob("events*")))


def test_a_node_that_joins_goes_on_with_the_record_of_the_others(tmp_path, run, capsys):
    folders = [tmp_path / name for name in "ab"]
    one, other = (Telemetry(run, folder, keeps=True) for folder in folders)
    for folder in folders:
        folder.mkdir()
    (folders[1] / "metrics.jsonl").write_text('{"kind": "step", "step": 9}\n')
    one.begin(0, False)
    one.lead(True, 0)
    one.record(StepEvent(step=1, loss=0.5))
    other.record(StepEvent(step=7, loss=0.5))  # not in any group yet
    other.take_over(one.text())
    for each in (one, other):
        each.record(StepEvent(step=2, loss=float("nan")))
        each.say("two")
        each.sync()
        each.close(failed=False)
    assert [(each["step"], each["loss"]) for each in records(folders[0])] == [(1, 0.5), (2, None)]
    times = [{**each, "time": ""} for folder in folders for each in records(folder)]
    assert times[:2] == times[2:]
    assert (boards(folders[0]), boards(folders[1])) == (1, 0)
    assert capsys.readouterr().out == "two\n"


def test_another_leader_takes_over_the_boards_and_may_give_them_back(tmp_path, run, monkeypatch):
    begun, ended = [], []
    there = SimpleNamespace(log=lambda *a, **k: None, finish=lambda exit_code: ended.append(1))
    monkeypatch.setattr("wandb.init", lambda **how: begun.append(how["id"]) or there)
    run = resolve_run({"model": "smollm2-135m", "wandb": "offline", "run": "night"}, tmp_path)
    telemetry = Telemetry(run, tmp_path, keeps=True)
    telemetry.begin(0, False)
    telemetry.lead(False, 0)
    assert (begun, boards(tmp_path)) == ([], 0)
    for leads in (True, True, False, True):
        telemetry.lead(leads, 3)
        telemetry.record(EvaluateEvent(step=3, loss=1.0))
    telemetry.close(failed=False)
    assert (begun, len(ended)) == (["night", "night"], 2)
    assert boards(tmp_path) >= 1
    assert len(records(tmp_path)) == 4


def test_a_rank_that_keeps_no_record_writes_nothing(tmp_path, run):
    telemetry = Telemetry(run, tmp_path, keeps=False)
    telemetry.begin(0, False)
    telemetry.record(StepEvent(step=1))
    telemetry.take_over("{}\n")
    telemetry.sync()
    telemetry.close(failed=False)
    assert telemetry.text() == ""
    assert [each.name for each in tmp_path.iterdir() if each.name == "metrics.jsonl"] == []


def test_who_left_and_who_joined_is_seen_by_a_rank_that_was_in_the_last_group():
    parting = Parting("broken", "laptop: silent for 6 s", 2, ("tower", "laptop"), 0.0)
    assert parting.left(("tower", "oldbox")) == {"laptop": "laptop: silent for 6 s"}
    assert parting.joined(("tower", "oldbox")) == ["oldbox"]
    both = {"laptop": "silent for 6 s", "oldbox": "it was killed"}
    parting = Parting("broken", "laptop: silent", 2, ("tower", *both), 0.0, both)
    assert parting.left(("tower",)) == both
    paused = Parting("paused", "", 2, ("tower", "laptop"), 0.0)
    assert paused.left(("tower",)) == {"laptop": "it left in order"}


def test_a_disk_that_fills_under_tensorboard_is_one_error_and_no_traceback(run, tmp_path):
    """In a process of its own, whose files may not grow: an error as that of a full disk."""
    script = """if True:
        import pickle, resource, signal, sys
        from pathlib import Path
        from hearth.record.events import EvaluateEvent
        from hearth.trainer.telemetry import Telemetry
        run, folder = pickle.loads(bytes.fromhex(sys.argv[1])), Path(sys.argv[2])
        telemetry = Telemetry(run, folder, keeps=False)
        telemetry.lead(True, 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            for step in range(1, 100_000):
                telemetry.record(EvaluateEvent(step=step, loss=1.0))
        except OSError as error:
            telemetry.close(failed=True)
            sys.exit(f"refused: {error.strerror}")
    """
    words = [sys.executable, "-c", script, pickle.dumps(run).hex(), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"refused: {os.strerror(errno.EFBIG)}"
    assert "Traceback" not in done.stderr


class Service:
    """A stand-in for Weights & Biases; `begin` is called by each start with its mode."""

    def __init__(self, monkeypatch, begin=lambda mode: None):
        self.modes, self.got, self.ended, self._begin = [], [], [], begin
        monkeypatch.setattr("wandb.init", self._init)
        monkeypatch.setattr(online, "AT_END", 0.3)

    def _init(self, mode, **how):
        self.modes.append(mode)
        self._begin(mode)
        return self

    def log(self, numbers, step):
        self.got.append((step, numbers["train/loss"]))

    def finish(self, exit_code):
        self.ended.append(exit_code)


def steps_taken(tmp_path, then=lambda: None, **settings):
    """Record 50 steps as a run does, which calls `then` before its end; return its seconds."""
    run = resolve_run({"model": "smollm2-135m", "wandb": "offline"} | settings, tmp_path)
    telemetry, started = Telemetry(run, tmp_path, keeps=True), time.monotonic()
    telemetry.begin(0, False)
    telemetry.lead(True, 0)
    for step, loss in ALL:
        telemetry.record(StepEvent(step=step, loss=loss))
    then()
    telemetry.close(failed=False)
    assert [(each["step"], each["loss"]) for each in records(tmp_path)] == ALL
    return time.monotonic() - started


ALL = [(step, float(step)) for step in range(1, 51)]


@pytest.mark.parametrize(
    ("wanted", "key", "modes"),
    [
        ("off", "k", []),
        ("auto", "", ["offline"]),
        ("auto", "k", ["online"]),
        ("online", "", ["online"]),
        ("offline", "k", ["offline"]),
    ],
)
def test_weights_and_biases_is_online_only_if_wanted(tmp_path, monkeypatch, wanted, key, modes):
    service = Service(monkeypatch)
    monkeypatch.setenv("WANDB_API_KEY", key)
    steps_taken(tmp_path, wandb=wanted)
    assert service.modes == modes
    assert (service.got, service.ended) == ((ALL, [0]) if modes else ([], []))


def test_a_service_that_starts_late_gets_what_was_logged_before_in_order(tmp_path, monkeypatch):
    late = threading.Event()
    service = Service(monkeypatch, lambda mode: late.wait(30))
    monkeypatch.setattr(online, "AT_END", 30)

    def start():
        assert service.got == []
        late.set()

    steps_taken(tmp_path, start)
    assert (service.got, service.ended) == (ALL, [0])


@pytest.mark.parametrize("wanted", ["online", "offline"])
def test_a_service_that_never_answers_costs_a_line(tmp_path, monkeypatch, capsys, wanted):
    never = threading.Event()
    service = Service(monkeypatch, lambda mode: never.wait(60))
    assert steps_taken(tmp_path, wandb=wanted) < 30
    assert (service.got, service.ended) == ([], [])
    assert capsys.readouterr().out.count("\n") == 1
    never.set()


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1), RuntimeError("refused")])
def test_a_service_that_refuses_gets_everything_offline(tmp_path, monkeypatch, capsys, error):
    def refuse(mode):
        if mode == "online":
            raise error

    service = Service(monkeypatch, refuse)
    steps_taken(tmp_path, wandb="online")
    assert (service.modes, service.got) == (["online", "offline"], ALL)
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize("where", ["begin", "log", "finish"])
def test_a_service_that_fails_does_not_fail_the_run(tmp_path, monkeypatch, capsys, where):
    service = Service(monkeypatch)

    def fail(*arguments, **named):
        raise RuntimeError("its process has ended")

    setattr(service, {"begin": "_begin"}.get(where, where), fail)
    steps_taken(tmp_path)
    assert capsys.readouterr().out.count("\n") == 1


def test_what_waits_for_a_service_takes_bounded_memory(tmp_path, monkeypatch, capsys):
    never = threading.Event()
    Service(monkeypatch, lambda mode: never.wait(60))
    monkeypatch.setattr(online, "_MOST", 10)
    steps_taken(tmp_path)
    assert capsys.readouterr().out.count("\n") == 1
    never.set()


def test_a_rank_that_leads_no_more_does_not_wait_for_the_service(tmp_path, monkeypatch):
    late = threading.Event()
    service = Service(monkeypatch, lambda mode: late.wait(30))
    monkeypatch.setattr(online, "AT_END", 30)
    run = resolve_run({"model": "smollm2-135m", "wandb": "offline"}, tmp_path)
    telemetry, started = Telemetry(run, tmp_path, keeps=False), time.monotonic()
    for step in (1, 2, 3):  # leads in the first and the last
        telemetry.lead(step != 2, step)
        telemetry.record(StepEvent(step=step, loss=float(step)))
    assert time.monotonic() - started < 10
    late.set()
    telemetry.close(failed=True)
    assert (service.got, service.ended) == ([(1, 1.0), (3, 3.0)], [0, 1])
