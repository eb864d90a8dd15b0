"""A node's records of its runs, and the files deleted when one is removed."""

from __future__ import annotations

import fcntl
import json
import os
import threading

import pytest
from ansible.module_utils.hearth.base import systemd
from ansible.module_utils.hearth_node.runs import digest, leftovers
from support.facts import assert_names
from support.modules import call
from support.waiting import until
from support.workspace import under_way

from hearth.base.places import MANIFEST
from hearth.record.events import parse
from hearth.record.lines import abridged
from hearth.record.story import read_story
from hearth_controller.runs.digests import observed_runs


def line(kind: str, time: str, **values: object) -> str:
    return json.dumps({"kind": kind, "time": f"2026-11-20T{time}+00:00", **values}) + "\n"


@pytest.fixture
def workspace(workspace):
    """The workspace with the run `evening`, which was launched twice and has ended."""
    for folder in ("results/evening/adapter", "checkpoints/evening"):
        (workspace / folder).mkdir(parents=True)
    results = workspace / "results" / "evening"
    record = {"state": "finished", "heartbeat": "2026-11-20T20:09:00Z", "nodes": ["desk"]}
    (results / "supervisor.json").write_text(json.dumps(record))
    (results / "run.yml").write_text("run: evening\n")
    (results / "metrics.jsonl").write_text(
        line("start", "20:00:00", steps=5)
        + line("evaluate", "20:00:01", when="before", perplexity=48.0)
        + "".join(line("step", f"20:00:0{step}", step=step, steps=5) for step in (2, 3))
        + line("checkpoint", "20:00:04", step=3)
        + line("start", "20:08:00", steps=5)
        + "".join(line("step", f"20:08:0{step}", step=step, steps=5) for step in (4, 5))
        + line("step", "20:08:06", step=6)[:-9]  # cut short
    )
    for step in (3, 5):
        folder = workspace / "checkpoints" / "evening" / f"step-{step:08d}"
        folder.mkdir()
        (folder / "checkpoint.json").write_text("{}")
    (workspace / "checkpoints" / "evening" / ".writing-step-00000009").mkdir()
    (workspace / "logs" / "evening.log").write_text("hello\n")
    for name in ("evening.json", "evening.secrets"):
        (workspace / "config" / name).write_text("{}")
    (workspace / "logs" / "other.log").write_text("stays")
    return workspace


@pytest.mark.parametrize("elsewhere", [False, True])
def test_models_that_a_node_has_whole_are_named(workspace, tmp_path, elsewhere):
    models = tmp_path / "shared" if elsewhere else workspace / "models"
    for name, absent in (("whole", []), ("part", ["model-00002-of-00003.safetensors"])):
        (models / name).mkdir(parents=True)
        (models / name / MANIFEST).write_text(json.dumps({"absent": absent}))
    (models / "torn").mkdir()
    (models / "torn" / MANIFEST).write_text("[")
    said = runs(workspace, **{"models": str(models)} if elsewhere else {})
    assert said["whole"] == ["whole"]


@pytest.fixture
def held(workspace):
    """The same workspace, held by the supervisor of `evening`."""
    with under_way(workspace, "evening"):
        yield workspace


def runs(workspace, **more: object) -> dict:
    """Return the module's answer about a workspace's runs."""
    return call("hearth_runs", workspace=str(workspace), **more)


def test_a_run_is_told_in_short(workspace):
    (run,) = runs(workspace)["runs"]
    assert (run["name"], run["alive"], run["asked"]) == ("evening", False, None)
    assert run["record"]["state"] == "finished"
    assert run["silent_seconds"] > 0
    metrics = run["metrics"]
    assert metrics["began"].startswith("2026-11-20T20:00:00")
    told = [*parse(metrics["lines"])]
    assert {each.when: each.perplexity for each in told if each.kind == "evaluate"}["before"] == 48
    assert [each.step for each in told if each.kind == "step"] == [5]
    seconds = sum(last - first for first, last in metrics["spans"])
    assert seconds == 9.0  # both launches, not the time between them
    story = read_story(workspace / "results" / "evening")
    assert (story.seconds, story.length) == (seconds, metrics["spans"][-1][1])
    assert run["checkpoint"]["step"] == 5
    assert run["files"]["logs/evening.log"] == 6
    assert run["files"]["checkpoints/evening"] == 4
    assert run["curves"] is None


def test_the_age_of_the_newest_curves_is_known(workspace):
    curves = workspace / "results" / "evening" / "tensorboard"
    curves.mkdir()
    (empty,) = digest.summaries(str(workspace))
    assert empty["curves"] is None
    for name, written in (("events.1", 1000), ("events.2", 3000), ("events.3", 2000)):
        (curves / name).write_text("x")
        os.utime(curves / name, (written, written))
    (run,) = digest.summaries(str(workspace), now=3004)
    assert run["curves"] == 4.0


def test_the_teams_of_the_last_launch_are_told_and_all_regroups_counted(workspace):
    metrics = workspace / "results" / "evening" / "metrics.jsonl"
    assert abridged(metrics)["regroups"] == 0
    teams = [line("team", "20:09:00", step=step, nodes=["desk"]) for step in range(150)]
    again = line("start", "20:10:00", steps=5)
    metrics.write_text(teams[0] + again + "".join(teams))
    told = abridged(metrics)
    assert told["regroups"] == 151
    assert told["lines"] == [again, *teams[50:]]
    metrics.write_text("".join(teams) + again)
    assert (abridged(metrics)["regroups"], abridged(metrics)["lines"]) == (150, [again])


def test_a_run_under_way_is_alive_and_its_clock_runs(held):
    (held / "results" / "evening" / "stop").write_text("stop\n")
    (run,) = runs(held)["runs"]
    assert (run["alive"], run["asked"]) == (True, "stop\n")
    (_, last) = run["metrics"]["spans"][-1]
    assert last > 3600


def test_a_node_without_a_workspace_has_no_runs(tmp_path):
    assert runs(tmp_path / "none")["runs"] == []


def test_broken_files_hide_no_run(workspace):
    results = workspace / "results" / "evening"
    (results / "supervisor.json").write_text("{")
    (results / "metrics.jsonl").write_bytes(b'\xff\n[1]\n{"kind": "step"}\n')
    (run,) = runs(workspace)["runs"]
    assert (run["record"], run["silent_seconds"]) == (None, None)
    assert run["metrics"] == {"lines": ['{"kind": "step"}\n'], "regroups": 0}


def test_files_that_are_nested_deep_hide_no_run(workspace):
    """They are not passed on: the controller can write and read everything it gets."""
    results, deep = workspace / "results" / "evening", "[" * 5000
    (results / "supervisor.json").write_text(f'{{"nodes": {deep}')
    (results / "run.yml").write_text(deep)
    nested = '{"kind": "start", "ranks": ' + "[" * 500 + "]" * 500 + "}\n"
    odd = line("evaluate", "20:00:00", when="began") + line("step", "20:00:01", step="x")
    (results / "metrics.jsonl").write_text(f'{{"kind": "start", "ranks": {deep}\n{nested}{odd}')
    (workspace / "results" / "other").mkdir()
    told = runs(workspace)["runs"]
    evening, other = observed_runs({"desk": told})
    assert {evening.name, other.name} == {"evening", "other"}
    assert evening.run is evening.script is None
    assert evening.story.launches == []


def test_what_vanishes_while_it_is_looked_at_counts_for_nothing(workspace, monkeypatch):
    walked = os.walk

    def walk(top):
        for folder, folders, names in walked(top):
            yield folder, folders, [*names, ".supervisor.json.4242"]  # renamed meanwhile

    monkeypatch.setattr(digest.os, "walk", walk)
    assert digest.size(str(workspace / "checkpoints" / "evening")) == 4
    assert digest.size(str(workspace / "logs" / "gone.log")) == 0


def test_what_is_removed_is_that_run_and_nothing_else(workspace):
    there = {"results/evening", "checkpoints/evening", "logs/evening.log"}
    there |= {"config/evening.json", "config/evening.secrets"}
    for check in (True, False):
        answer = runs(workspace, check=check, remove="evening")
        assert answer["changed"]
        assert answer["removed"].keys() == there
        assert (workspace / "logs" / "evening.log").exists() == check
    left = {str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file()}
    assert left == {"logs/other.log"}
    again = runs(workspace, remove="evening")
    assert (again["changed"], again["removed"]) == (False, {})


def test_a_link_is_removed_and_not_what_it_leads_to(workspace, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "precious").write_text("x")
    (workspace / "results" / "linked").symlink_to(elsewhere)
    runs(workspace, remove="linked")
    assert not (workspace / "results" / "linked").exists()
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("name", ["evening", "..", "../evening", "a/b", ".hidden", "-x"])
def test_only_a_name_is_removed_and_never_a_run_under_way(held, name):
    answer = runs(held, remove=name)
    assert answer["failed"]
    assert_names(answer["msg"], f"'{name}'")
    assert ("under way" in answer["msg"]) == (name == "evening")
    assert (held / "results" / "evening" / "run.yml").exists()


@pytest.fixture
def queued(workspace):
    """The same workspace with the run `night` in its queue, and a stand-in of its supervisor."""
    (workspace / "results/night").mkdir()
    turn = {"position": 2.0, "at": None, "submitted": "2026-11-20T20:00:00+00:00"}
    (workspace / "queue/night.json").write_text(json.dumps(turn))
    (workspace / "config/night.json").write_text("{}")
    ended = threading.Event()
    with (workspace / "queue/night.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def supervisor() -> None:
            """Leave at a stop, as a supervisor that waits does."""
            while not ended.wait(0.05):
                if (workspace / "results/night/stop").exists():
                    fcntl.flock(lock, fcntl.LOCK_UN)
                    return

        thread = threading.Thread(target=supervisor)
        thread.start()
        yield workspace
        ended.set()
        thread.join()


def test_a_run_in_the_queue_is_alive_and_has_its_place(queued):
    evening, night = runs(queued)["runs"]
    assert (evening["alive"], evening["turn"]) == (False, None)
    assert (night["alive"], night["turn"]["position"]) == (True, 2.0)


def test_a_run_is_moved_in_the_queue(queued):
    place = queued / "queue/night.json"
    for check in (True, False):
        assert runs(queued, check=check, move="night", position=0.5)["changed"]
        assert json.loads(place.read_text())["position"] == (2.0 if check else 0.5)
    assert json.loads(place.read_text())["submitted"] == "2026-11-20T20:00:00+00:00"
    assert not runs(queued, move="night", position=0.5)["changed"]
    answer = runs(queued, move="evening", position=0.5)
    assert_names(answer["msg"], "'evening'", "does not wait in the queue here")


def test_a_run_that_is_removed_leaves_the_queue_first(queued):
    assert runs(queued, check=True, remove="night")["changed"]
    assert (queued / "queue/night.json").exists()
    answer = runs(queued, remove="night")
    assert answer["removed"].keys() == {
        *("results/night", "config/night.json", "queue/night.json", "queue/night.lock")
    }
    assert [*(queued / "queue").iterdir()] == []


def test_what_belongs_to_a_run_in_the_queue_is_no_leftover(queued, units_of_the_user):
    unit = units_of_the_user / "hearth-night.service"
    unit.write_text(f'ExecStart=python --spec "{queued}/config/night.json"\n')
    assert leftovers.files(str(queued)) == []
    (queued / "results/night/stop").touch()
    until(lambda: leftovers.files(str(queued)) == [str(unit)])


@pytest.fixture
def units_of_the_user(tmp_path, monkeypatch):
    folder = tmp_path / "units"
    folder.mkdir()
    monkeypatch.setattr(systemd, "units_folder", lambda: folder)
    return folder
