"""A run of a person's own script: the files sent, the refusals, the report."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from ansible.parsing.dataloader import DataLoader
from hypothesis import given
from hypothesis import strategies as st
from support.digests import NODES, digest
from support.facts import assert_names, refuses
from support.plugins import load
from support.words import TRAIN

from hearth.base.errors import ConfigError
from hearth.config import newest_run, run_of
from hearth_controller.launch.typed import foreign, sort_out
from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.listing import compare, listing
from hearth_controller.runs.observed import ObservedRun
from hearth_controller.runs.outcome import Outcome
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import status_lines
from hearth_controller.runs.summary import script_summary
from hearth_controller.script import tree
from hearth_controller.script.request import ScriptRequest, new_request, resumed_request
from hearth_controller.script.run import script_of, script_text
from hearth_controller.script.tree import Tree, code_tree, data_tree

run = load("action", "hearth_run")

NOW = datetime(2026, 11, 22, 7, 30, tzinfo=UTC)


def project(folder: Path) -> Path:
    """Make a project as one looks, and return its script."""
    made = (".git/HEAD", "__pycache__/train.pyc", "parts/__pycache__/model.pyc", "env/pyvenv.cfg")
    for path, text in {
        **dict.fromkeys((*made, "me.egg-info/PKG-INFO"), "x"),
        "train.py": "print('hello')\n",
        "parts/model.py": "WIDTH = 3\n",
        "settings.toml": "lr = 1\n",
        ".env": "A=1",
        "data/rows.csv": "1,2\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "linked").symlink_to(folder / "parts")
    (folder / "broken").symlink_to(folder / "nowhere")
    return folder / "train.py"


def script_request(folder: Path, **given: object) -> ScriptRequest:
    """Return the run that is asked for with a project's script."""
    return new_request({"script": str(project(folder / "work")), **given}, folder / "runs", NOW)


def refused(folder: Path, **given: object) -> str:
    """Return all that is said when such a run is refused."""
    with pytest.raises(ConfigError) as error:
        new_request(given, folder / "runs", NOW)
    return "\n".join(error.value.findings)


# -- what goes to the nodes ------------------------------------------------------------------------


def test_code_goes_and_what_tools_made_stays_and_is_named(tmp_path):
    folder = project(tmp_path).parent
    found = code_tree(folder, folder / "data")
    assert set(found.files) == {"train.py", "parts/model.py", "settings.toml", ".env"}
    left_out = ".git __pycache__ broken data env linked me.egg-info"
    assert found.left_out == tuple(left_out.split())
    assert_names(
        found.summary, "4 files, 35 B", "__pycache__, broken, data, env", "linked", "1 more"
    )


@given(st.dictionaries(st.sampled_from("abcdef"), st.text("xyz", max_size=3), min_size=1))
def test_the_checksum_of_a_folder_is_that_of_its_names_and_contents(files):
    one = Tree(Path("a"), files, 1)
    assert one.sha256 == Tree(Path("b"), dict(reversed(files.items())), 2, ("left",)).sha256
    for name in files:
        assert Tree(Path("a"), {**files, name: files[name] + "!"}, 1).sha256 != one.sha256
        renamed = {("g" if key == name else key): value for key, value in files.items()}
        assert Tree(Path("a"), renamed, 1).sha256 != one.sha256


@pytest.mark.parametrize(
    ("name", "files"), [("settings.toml", ["settings.toml"]), ("parts", ["parts/model.py"])]
)
def test_data_is_a_file_or_a_folder_under_its_own_name(tmp_path, name, files):
    folder = project(tmp_path / "work").parent
    found = data_tree(folder / name)
    assert (found.source, list(found.files)) == (folder, files)


def test_a_folder_that_is_too_big_is_refused_with_what_is_big_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tree, "MOST_CODE", 50_000)
    folder = project(tmp_path).parent
    (folder / "checkpoints").mkdir()
    for name in ("a.pt", "b.pt"):
        (folder / "checkpoints" / name).write_bytes(bytes(40_000))
    facts = ("80.0 kB in 7 files", "checkpoints (80.0 kB, 2 files)", "-e script_folder=")
    with refuses(ConfigError, *facts):
        code_tree(folder)


def test_a_home_is_no_folder_of_a_script(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert_names(refused(tmp_path, script=str(project(tmp_path))), tmp_path)


# -- what is asked for -----------------------------------------------------------------------------


def test_a_script_becomes_a_run_with_places_on_the_nodes(tmp_path):
    found = script_request(
        tmp_path,
        script_args="--epochs 3 --name 'two words' --out {results} --data {data}",
        script_data=str(tmp_path / "work" / "data"),
    )
    assert found.run.name == "train-20261122-073000"
    arguments = ["--epochs", "3", "--name", "two words", "--out", "{results}", "--data", "{data}"]
    assert found.spec == {
        "script": "code/train-20261122-073000/train.py",
        "arguments": arguments,
        "folder": "code/train-20261122-073000",
        "data": f"data/{found.data.sha256[:12]}/data",
    }
    assert "data" in found.code.left_out


def test_another_folder_can_be_the_scripts(tmp_path):
    work = project(tmp_path / "work").parent
    script = work / "parts" / "model.py"
    found = new_request({"script": str(script), "script_folder": str(work), "run": "x"}, tmp_path)
    assert found.run.script == "parts/model.py"
    assert "train.py" in found.code.files


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    given = {
        "script": "nowhere/train.py",
        "script_data": "nowhere.csv",
        "script_folder": "nowhere/else",
        "script_args": "--open 'quote",
        "run": "../up",
    }
    said = refused(tmp_path, **given)
    found = dict(line.partition(": ")[::2] for line in said.splitlines())
    assert found.keys() == given.keys()
    for name, word in given.items():
        assert_names(found[name], word)


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("train.sh", "echo", ["train.sh", ".py"]),
        ("train.py", "import torch\nfor x in\n", ["train.py:2", "invalid syntax"]),
        ("train.py", "\0", ["train.py", "Python"]),
    ],
)
def test_what_torchrun_could_not_start_is_refused(tmp_path, name, text, facts):
    (tmp_path / name).write_text(text)
    assert_names(refused(tmp_path, script=str(tmp_path / name)), *facts)


def test_a_script_outside_its_folder_and_a_place_without_data_are_refused(tmp_path):
    script = project(tmp_path / "work")
    parts = script.parent / "parts"
    given = {"script": str(script), "script_folder": str(parts), "script_args": "{data}"}
    outside, without_data = refused(tmp_path, **given).splitlines()
    assert_names(outside, parts)
    assert_names(without_data, "script_args", "{data}", "-e script_data=")


def test_a_runs_file_says_what_was_asked_for(tmp_path):
    found = script_request(tmp_path, script_args="--x 1", run="evening").run
    text = script_text(found)
    assert script_of(text, "run.yml") == found
    assert script_of("run: other\nsettings: {}\n", "run.yml") is None
    assert script_of(": no yaml: [", "run.yml") is None
    with refuses(ConfigError, "run.yml", "script"):
        run_of(text, "run.yml")
    with refuses(ConfigError, "run.yml"):
        script_of("script: {arguments: []}", "run.yml")


# -- going on --------------------------------------------------------------------------------------


def on_record(folder: Path, **given: object) -> ScriptRequest:
    found = script_request(folder, run="evening", **given)
    file = folder / "runs" / "evening" / "run.yml"
    file.parent.mkdir(parents=True)
    file.write_text(script_text(found.run))
    return found


def test_a_run_goes_on_with_the_same_code_and_other_arguments(tmp_path):
    found = on_record(tmp_path, script_args="--epochs 3")
    assert newest_run(tmp_path / "runs") == "evening"
    again = resumed_request("evening", {}, tmp_path / "runs")
    assert again.resumes
    assert again.run == found.run
    longer = resumed_request("evening", {"script_args": "--epochs 9"}, tmp_path / "runs")
    assert longer.run.arguments == ("--epochs", "9")


def test_a_run_whose_code_has_changed_is_another_run(tmp_path):
    on_record(tmp_path)
    (tmp_path / "work" / "parts" / "model.py").write_text("WIDTH = 4\n")
    with pytest.raises(ConfigError, match="'evening'"):
        resumed_request("evening", {}, tmp_path / "runs")
    with pytest.raises(ConfigError, match="script_data: "):
        resumed_request("evening", {"script_data": "x"}, tmp_path / "runs")
    assert resumed_request("ghost", {}, tmp_path / "runs") is None


# -- what is typed after -e ------------------------------------------------------------------------


def test_a_scripts_arguments_are_taken_as_they_are():
    given = ["script=a.py wait=off", "script_args=--lr=0.1 --name 'a b' x=y"]
    typed = {"script": "a.py", "wait": "off", "script_args": "--lr=0.1 --name 'a b' x=y"}
    assert run.typed_variables(given, DataLoader()) == typed
    later = run.typed_variables([*given, 'script_args="--x 1"'], DataLoader())
    assert later == typed | {"script_args": "--x 1"}


def test_what_does_not_go_with_a_script_is_refused():
    given = {"script": "a.py", "model": "m", "train": {"max_steps": 3}, "min_nodes": "2"}
    settings, launch, findings = sort_out(given, TRAIN, ())
    assert not findings
    said = [each.partition(":")[0] for each in foreign(settings, launch)]
    assert said == ["-e model and -e script", "-e max_steps", "-e min_nodes"]
    settings, launch, _ = sort_out(
        {"script": "a.py", "elastic": "true", "min_nodes": "2"}, TRAIN, ()
    )
    assert foreign(settings, launch) == []


# -- how it is told --------------------------------------------------------------------------------


def observed(folder: Path) -> ObservedRun:
    """Return a script's run under way on two nodes."""
    text = script_text(script_request(folder, run="evening", script_args="--epochs 3").run)
    of_script = {"metrics": {}, "checkpoint": None, "run_file": text}
    (run,) = observed_runs({node: [digest(node, **of_script)] for node in NODES})
    return run


def test_a_scripts_run_is_shown_with_its_state_and_since_when_and_no_step(tmp_path):
    one = observed(tmp_path)
    assert (one.state, one.story.step, one.program) == ("running", 0, "train.py")
    assert one.begun == NOW.isoformat(timespec="seconds")
    summary = status([one], {}, {}, "now")["runs"][0]
    assert (summary["script"], summary["model"]) == ("train.py", None)
    lines = status_lines({"runs": [summary], "nodes": [], "reasons": [], "verdict": "good"}, 118)
    assert_names(lines[2], "train.py", "running")
    assert "2026-11-2" in lines[2]
    assert "train.py" in listing([one], 120)[1]


def test_two_runs_of_a_script_differ_in_what_was_asked_for(tmp_path):
    lines = compare(observed(tmp_path / "a"), observed(tmp_path / "b"))
    assert any(line.startswith("script ") for line in lines)
    assert not any(line.startswith("script_args") for line in lines)


def closing(folder: Path, state: str, files: tuple[str, ...] = ("files", "logs"), **more: object):
    script = script_request(folder, run="evening").run
    end = {"state": state, "since": "2026-11-22T07:33:20Z", "generation": 0, **more}
    if state == "failed":
        end["cause"] = {"node": "laptop", "message": "train.py:3: ValueError: no"}
    ends = {"desk": end, "laptop": end}
    return script_summary(script, Outcome(ends), "runs/evening", files)


def test_the_summary_of_a_scripts_run(tmp_path):
    head, *rest = closing(tmp_path / "a", "finished").splitlines()
    assert_names(head, "evening finished", "train.py", "desk, laptop", "3 min 20 s")
    assert_names("\n".join(rest), "runs/evening/files", "runs/evening/logs")
    stopped = closing(tmp_path / "b", "stopped", generation=1)
    assert_names(stopped, "evening", "stopped", "train.py")
    assert_names(stopped, "hearth resume evening")
    failed = closing(tmp_path / "c", "failed", files=("logs",))
    assert_names(failed, "less runs/evening/logs/laptop.log")
    assert "evening/files" not in failed
