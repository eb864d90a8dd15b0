"""Hearth's files in a user's home, and the ones that a reset may remove."""

from __future__ import annotations

import pytest
from support.modules import call
from support.workspace import under_way


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home with workspace and environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("ai-cluster/scripts/hearth", "ai-cluster/config", ".local/share/hearth/venv"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def leave(**more: object) -> dict:
    """Return the module's answer about the workspace `~/ai-cluster`."""
    return call("hearth_leave", **{"workspace": "~/ai-cluster"} | more)


@pytest.mark.parametrize(
    "kind, gone, kept",
    [
        ("workspace", "ai-cluster", ".local/share/hearth"),
        ("environment", ".local/share/hearth", "ai-cluster"),
    ],
)
def test_only_what_is_asked_for_is_removed_and_in_check_mode_not_even_that(home, kind, gone, kept):
    answer = leave()
    assert (answer["run"], answer["removed"], answer["changed"]) == ("", [], False)
    assert answer["kept"] == [str(home / "ai-cluster"), str(home / ".local/share/hearth")]
    for check in (True, False):
        answer = leave(check=check, remove=[kind])
        assert (answer["changed"], answer["kept"]) == (True, [str(home / kept)])
        assert (home / gone).exists() == check
    assert leave()["kept"] == [str(home / kept)]
    assert not leave(remove=[kind])["changed"]


def test_the_environment_goes_without_the_runs_of_nodes_that_live_beside_it(home):
    beside = home / ".local/share/hearth"
    (beside / "desk/scripts/hearth").mkdir(parents=True)
    (beside / "desk/checkpoints").mkdir()
    (beside / "note").touch()
    (beside / "link").symlink_to(home / "ai-cluster")
    answer = leave(remove=["environment"])
    assert answer["changed"]
    assert sorted(path.name for path in beside.iterdir()) == ["desk", "link"]
    assert (beside / "desk/checkpoints").exists()
    assert leave()["kept"] == [str(home / "ai-cluster")]


def test_a_folder_without_the_training_code_is_no_workspace(home):
    answer = leave(workspace="~", remove=["workspace"])
    assert not answer["changed"]
    assert (home / "ai-cluster").exists()


@pytest.mark.parametrize(
    "text, run", [('{"run": "evening", "pid": 7}', "evening"), ("", "of unknown name")]
)
def test_a_run_that_holds_the_node_is_named(home, text, run):
    with under_way(home / "ai-cluster", run, text):
        assert leave()["run"] == run
    assert leave()["run"] == ""
