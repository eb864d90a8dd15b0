"""A node's workspace: Hearth's code in it, its mark, and the things that are not Hearth's."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from types import SimpleNamespace

import pytest
from ansible.module_utils.hearth_node.workspace.mark import (
    FILES,
    FOLDERS,
    MARK,
    made_here,
    removable,
)
from support.facts import assert_names
from support.modules import call
from support.plugins import load
from support.workspace import under_way

files_action = load("action", "hearth_files")


@pytest.fixture
def place(tmp_path_factory):
    """Return a function that brings the code, a file `hearth/a.py`, to a workspace."""
    source = tmp_path_factory.mktemp("code")
    (source / "a.py").write_text("new\n")
    with tarfile.open(source / "code.tar.gz", "w:gz") as archive:
        archive.add(source / "a.py", "hearth/a.py")
    code = {"hearth/a.py": hashlib.sha256(b"new\n").hexdigest()}
    given = {"code": code, "archive": f"{source}/code.tar.gz"}
    return lambda path, check=False, **more: call(
        "hearth_workspace", check, path=str(path), **given, **more
    )


def test_other_code_takes_the_place_of_the_old_unless_a_run_starts_with_it(workspace, place):
    here = workspace / "scripts" / "hearth" / "a.py"
    here.write_text("old\n")
    with under_way(workspace, "evening"):
        answer = place(workspace)
    assert answer["under_way"] == "evening"
    assert (answer["differing"], here.read_text()) == (["hearth/a.py"], "old\n")
    answer = place(workspace)
    assert (answer["changed"], answer["under_way"], here.read_text()) == (True, "", "new\n")
    assert not place(workspace)["changed"]


def test_nodes_that_share_a_workspace_see_each_others_marks_of_this_play(workspace):
    mark = {"workspace": str(workspace)}
    first = call("hearth_home", node="tower", **mark)
    assert (first["seen"], first["changed"]) == ([], False)
    second = call("hearth_home", node="laptop", **mark)
    assert second["seen"] == [first["token"]]
    assert call("hearth_home", node="tower", **mark)["token"] not in (first["token"], "")


def test_a_check_leaves_no_mark_of_a_node(tmp_path):
    folder = tmp_path / "w"
    assert call("hearth_home", check=True, node="tower", workspace=str(folder))["seen"] == []
    assert not folder.exists()


def test_no_mark_in_a_workspace_that_cannot_be_written(tmp_path):
    (tmp_path / "w").touch()
    answer = call("hearth_home", node="tower", workspace=str(tmp_path / "w"))
    assert (answer["token"], answer["seen"]) == ("", [])


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    "own", ["scripts/backup.sh", "scripts/hearth/warm.py", "scripts", "scripts.new/notes"]
)
def test_scripts_that_are_not_hearths_stay_and_are_a_finding(tmp_path, place, own, check):
    home = tmp_path / "projects"
    (home / own).parent.mkdir(parents=True)
    (home / own).write_text("mine")
    answer = place(home, check)
    assert (home / own).read_text() == "mine"
    if own != "scripts.new/notes":
        assert_names(answer["findings"][0], home / "scripts", "hearth_workspace")
        assert not answer["changed"]
        assert not (home / "config").exists()


def test_scripts_in_a_marked_workspace_that_hearth_did_not_put_there_stay(workspace, place):
    place(workspace)
    (workspace / "scripts").rename(workspace / "old")
    (workspace / "scripts").mkdir()
    (workspace / "scripts" / "backup.sh").write_text("mine")
    assert place(workspace)["findings"]
    assert (workspace / "scripts" / "backup.sh").read_text() == "mine"


def test_a_workspace_from_before_the_mark_is_marked_once(workspace, place):
    assert place(workspace, check=True)["changed"]
    assert not (workspace / MARK).exists()
    place(workspace)
    assert (workspace / MARK).exists()
    assert not place(workspace)["changed"]


def test_the_mark_names_only_what_hearth_made(tmp_path, place):
    (tmp_path / "results" / "thesis").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    place(tmp_path)
    assert made_here(str(tmp_path)) == {*FOLDERS} - {"results"}


def test_files_for_a_person_are_hearths_where_nobody_elses_have_their_names(tmp_path, place):
    (tmp_path / "README.md").write_text("mine")
    place(tmp_path)
    assert made_here(str(tmp_path)).isdisjoint(FILES)  # a run claims none
    node = {"files": True, "address": "127.0.0.2", "python": f"{tmp_path}/python", "nproc": 3}
    answer = place(tmp_path, **node)
    assert answer["files"] == ["cluster_config.yaml", "launch_cluster.sh"]
    assert (answer["interface"], answer["python"], answer["nproc"]) == ("lo", node["python"], 3)
    assert made_here(str(tmp_path)) == {*FOLDERS, *answer["files"], "hearth-lend"}
    for name in answer["files"]:
        (tmp_path / name).write_text("Hearth's")
    assert removable(str(tmp_path))[1] == [str(tmp_path / "README.md")]


def test_the_lending_command_comes_with_the_code_and_replaces_no_file_of_a_person(tmp_path, place):
    """A launch brings both, so the command is wherever a run can be."""
    python, script = f"{tmp_path}/a b/python", tmp_path / "hearth-lend"
    assert place(tmp_path, check=True, python=python)["changed"]
    assert not script.exists()
    place(tmp_path, python=python)
    assert not place(tmp_path, python=python)["changed"]
    assert script.stat().st_mode & 0o111
    said = subprocess.run([script], capture_output=True, text=True)
    assert (said.returncode, python in said.stderr) == (2, True)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "hearth-lend").write_text("mine")
    place(theirs, python=python)
    assert (theirs / "hearth-lend").read_text() == "mine"


@pytest.mark.parametrize("line", ["/etc", "..", "data/../../x", "mine", ""])
def test_a_mark_names_nothing_but_hearths_folders(workspace, line):
    (workspace / MARK).write_text(f"logs\n{line}\n")
    assert made_here(str(workspace)) == {"logs"}


class Node:
    """A stand-in for a connection: the names that the module is called to write."""

    def __init__(self, monkeypatch):
        self.written: list[str] = []
        monkeypatch.setattr(files_action.ActionBase, "run", lambda *_: {})
        monkeypatch.setattr(files_action.ActionModule, "_execute_module", self._write)

    def _write(self, module_args, task_vars):
        self.written += module_args["names"]
        return {"changed": True}

    def bring(self, texts, present):
        action = object.__new__(files_action.ActionModule)
        given = {"folder": "/w", "names": [*texts], "texts": texts, "present": present}
        action._task = SimpleNamespace(args=given)
        return action.run()


def test_files_for_a_person_are_sent_only_where_they_differ_from_those_on_the_node(
    monkeypatch, workspace, place
):
    node, given = Node(monkeypatch), {"files": True, "address": "127.0.0.1", "python": "/python"}
    texts = {name: f"{name}\n" for name in FILES}
    assert place(workspace, **given)["checksums"] == {}
    for name, text in texts.items():
        (workspace / name).write_text(text)
        (workspace / name).chmod(0o755 if name.endswith(".sh") else 0o644)
    present = place(workspace, **given)["checksums"]
    assert node.bring(texts, present) == {"changed": False}
    assert node.bring(texts | {"README.md": "newer\n"}, present)["changed"]
    assert node.written == ["README.md"]


def test_a_file_with_another_mode_is_written_again(workspace, place):
    given = {"files": True, "address": "127.0.0.1", "python": "/python"}
    place(workspace, **given)
    (workspace / "launch_cluster.sh").write_text("")
    (workspace / "launch_cluster.sh").chmod(0o644)
    assert place(workspace, **given)["checksums"] == {}
