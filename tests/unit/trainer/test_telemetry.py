"""The record of a run on the nodes that keep it, and the boards of the one that leads."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hearth.config import resolve_run
from hearth.trainer.regrouping import Parting
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
    one.record("step", step=1, loss=0.5)
    other.record("step", step=7, loss=0.5)  # not in any group yet
    other.take_over(one.text())
    for each in (one, other):
        each.record("step", step=2, loss=float("nan"))
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
    online = SimpleNamespace(log=lambda *a, **k: None, finish=lambda exit_code: ended.append(1))
    monkeypatch.setattr("wandb.init", lambda **how: begun.append(how["id"]) or online)
    run = resolve_run({"model": "smollm2-135m", "wandb": "offline", "run": "night"}, tmp_path)
    telemetry = Telemetry(run, tmp_path, keeps=True)
    telemetry.begin(0, False)
    telemetry.lead(False, 0)
    assert (begun, boards(tmp_path)) == ([], 0)
    for leads in (True, True, False, True):
        telemetry.lead(leads, 3)
        telemetry.record("evaluate", step=3, loss=1.0)
    telemetry.close(failed=False)
    assert (begun, len(ended)) == (["night", "night"], 2)
    assert boards(tmp_path) >= 1
    assert len(records(tmp_path)) == 4


def test_a_rank_that_keeps_no_record_writes_nothing(tmp_path, run):
    telemetry = Telemetry(run, tmp_path, keeps=False)
    telemetry.begin(0, False)
    telemetry.record("step", step=1)
    telemetry.take_over("{}\n")
    telemetry.sync()
    telemetry.close(failed=False)
    assert telemetry.text() == ""
    assert [each.name for each in tmp_path.iterdir() if each.name == "metrics.jsonl"] == []


def test_who_left_and_who_joined_is_seen_by_a_rank_that_was_in_the_last_group():
    parting = Parting("broken", "laptop: silent for 6 s", 2, ("tower", "laptop"), 0.0)
    assert parting.left(("tower", "oldbox")) == {"laptop": "laptop: silent for 6 s"}
    assert parting.joined(("tower", "oldbox")) == ["oldbox"]
    paused = Parting("paused", "", 2, ("tower", "laptop"), 0.0)
    assert paused.left(("tower",)) == {"laptop": "it left in order"}


def test_a_disk_that_fills_under_tensorboard_is_one_error_and_no_traceback(run, tmp_path):
    """In a process of its own, whose files may not grow: an error as that of a full disk."""
    script = """if True:
        import pickle, resource, signal, sys
        from pathlib import Path
        from hearth.trainer.telemetry import Telemetry
        run, folder = pickle.loads(bytes.fromhex(sys.argv[1])), Path(sys.argv[2])
        telemetry = Telemetry(run, folder, keeps=False)
        telemetry.lead(True, 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        try:
            for step in range(1, 100_000):
                telemetry.record("evaluate", step=step, loss=1.0)
        except OSError as error:
            telemetry.close(failed=True)
            sys.exit(f"refused: {error.strerror}")
    """
    words = [sys.executable, "-c", script, pickle.dumps(run).hex(), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == f"refused: {os.strerror(errno.EFBIG)}"
    assert "Traceback" not in done.stderr
