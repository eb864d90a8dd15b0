"""Hearth's files in a user's home, and the ones that a reset may remove."""

from __future__ import annotations

import os
import shutil
from types import SimpleNamespace

import pytest
from ansible.module_utils.hearth.base import systemd
from ansible.module_utils.hearth_node.workspace.mark import FOLDERS, MARK
from support.modules import call
from support.plugins import load
from support.workspace import under_way

from hearth.base.places import MANIFEST

MADE = {*FOLDERS, "code"}
HEARTHS = (
    ".hearth-scripts/a.py",
    "scripts/hearth/a.py",
    "code/evening/train.py",
    "config/evening.json",
    "logs/evening.log",
    "results/evening/run.yml",
    "results/evening/metrics.jsonl",
    "results/evening/.metrics.jsonl.4711",
    "results/evening/supervisor.json",
    "results/evening/votes.json",
    "results/evening/adapter/adapter_model.safetensors",
    "results/evening/.best.unfinished/model.safetensors",
    "results/evening/export/ollama-q8_0/Modelfile",
    "results/evening/tensorboard/events.1",
    "results/evening/wandb/offline-run-1/files/config.yaml",
    "results/evening/files/of/a/script.txt",
    "results/evening/job.log",
    "logs/.evening.torchrun/0/stderr.log",
    "logs/transfer.log",
    "logs/.chat.log",
    "config/supervisor.lock",
    "config/transfer.json",
    "config/chat.json",
    "config/evening.secrets",
    "queue/evening.lock",
    "checkpoints/evening/step-00000001/state.pt",
    f"models/tiny/{MANIFEST}",
    "models/.tiny.lock",
    "models/mine-1234.folder.json",
    "data/0123456789ab-words.jsonl",
    "data/0123456789ab/words.jsonl",
    "data/hub/rows.parquet",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home with environment, and a workspace from before the mark."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".local/share/hearth/venv").mkdir(parents=True)
    for name in HEARTHS:
        path = tmp_path / "ai-cluster" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def leave(**more: object) -> dict:
    """Return the module's answer about the workspace `~/ai-cluster`."""
    return call("hearth_leave", **{"workspace": "~/ai-cluster"} | more)


def files(folder) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


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
        assert answer["removed"] == [str(home / gone)]
        assert (home / gone).exists() == check
    assert leave()["kept"] == [str(home / kept)]
    assert not leave(remove=[kind])["changed"]


def test_what_stays_in_the_home_besides_is_named(home, monkeypatch):
    units = home / ".config/systemd/user"
    monkeypatch.setattr(systemd.pwd, "getpwuid", lambda uid: SimpleNamespace(pw_dir=str(home)))
    module = load("modules", "hearth_leave")
    assert module.traces() == []
    for folder in (".cache/hearth", ".cache/pip", ".cache/fontconfig"):
        (home / folder).mkdir(parents=True)
    (units / "default.target.wants").mkdir(parents=True)
    ours = [str(home / ".cache/hearth"), str(home / ".cache/pip")]
    assert module.traces() == [*ours, str(units)]
    (units / "theirs.service").touch()
    assert module.traces() == ours
    assert {*ours} <= {*leave()["kept"]}


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


def test_a_node_that_leaves_a_shared_home_takes_nothing_of_the_others(home):
    own, all_of_them = {}, home / ".local/share/hearth"
    for node in ("tower", "laptop"):
        shutil.copytree(home / "ai-cluster", home / "shared" / node)
        (home / "shared" / f".hearth-node-{node}").touch()
        (home / "shared" / node / "data/cf1796669e35-b.jsonl").symlink_to(home / "shared/b.jsonl")
        (all_of_them / node / "miniforge").mkdir(parents=True)
        own[node] = {
            "workspace": f"~/shared/{node}",
            "environments": f"~/.local/share/hearth/{node}",
        }
    shutil.rmtree(all_of_them / "venv")
    (home / "shared/b.jsonl").touch()
    others = files(home / "shared/laptop")
    leave(**own["tower"], remove=["environment", "workspace"])
    assert [path.name for path in all_of_them.iterdir()] == ["laptop"]
    assert sorted(os.listdir(home / "shared")) == [".hearth-node-laptop", "b.jsonl", "laptop"]
    assert files(home / "shared/laptop") == others


@pytest.mark.parametrize(
    ("own", "named", "made"),
    [
        ("notes.txt", "notes.txt", MADE),
        ("models/mine/model.safetensors", "models/mine", MADE),
        ("data/chats.jsonl", "data/chats.jsonl", MADE),
        ("results/thesis.pdf", "results/thesis.pdf", MADE),
        ("results/thesis/figure.png", "results/thesis", MADE),
        ("results/evening/notes.txt", "results/evening/notes.txt", MADE),
        ("results/evening/figures/loss.png", "results/evening/figures", MADE),
        ("results/evening/adapter.zip", "results/evening/adapter.zip", MADE),
        ("checkpoints/mine.pt", "checkpoints/mine.pt", MADE),
        ("checkpoints/evening/best of all/a.pt", "checkpoints/evening/best of all", MADE),
        ("logs/mine.log", "logs/mine.log", MADE),
        ("logs/evening.log.gz", "logs/evening.log.gz", MADE),
        ("config/my.json", "config/my.json", MADE),
        ("queue/todo.txt", "queue/todo.txt", MADE),
        ("results/.hidden", "results/.hidden", MADE),
        # Folders that were there before Hearth.
        ("data/chats.jsonl", "data/chats.jsonl", MADE - {"data"}),
        ("code/old/a.py", "code/old", MADE - {"code"} | {"code/evening"}),
    ],
)
def test_what_hearth_did_not_put_into_its_workspace_stays_and_is_named(home, own, named, made):
    folder = home / "ai-cluster"
    (folder / own).parent.mkdir(parents=True, exist_ok=True)
    (folder / own).touch()
    (folder / MARK).write_text("\n".join(made))
    answer = leave(remove=["workspace"])
    assert answer["changed"]
    assert answer["kept"][0] == str(folder / named)
    assert files(folder) == [own]
    assert not leave(remove=["workspace"])["changed"]


def test_a_link_and_all_behind_it_stays(home):
    folder, disk = home / "ai-cluster", home / "disk"
    (folder / "checkpoints").rename(disk)
    (folder / "checkpoints").symlink_to(disk)
    answer = leave(remove=["workspace"])
    assert answer["kept"][0] == str(folder / "checkpoints")
    assert files(disk) == ["evening/step-00000001/state.pt"]


@pytest.mark.parametrize("own", ["notes.txt", None])
def test_a_home_that_is_a_workspace_stays(home, own):
    for path in (home / "ai-cluster").iterdir():
        path.rename(home / path.name)
    (home / "ai-cluster").rmdir()
    shutil.rmtree(home / ".local")
    if own:
        (home / own).touch()
    leave(workspace="~", remove=["workspace"])
    assert [path.name for path in home.iterdir()] == [own] * bool(own)


@pytest.mark.parametrize("there", ["scripts/hearth/warm.py", "scripts/backup.sh", "config/x"])
def test_a_folder_that_is_no_workspace_stays_whole(home, there):
    projects = home / "projects"
    (projects / there).parent.mkdir(parents=True)
    (projects / there).touch()
    assert not leave(workspace="~/projects", remove=["workspace"])["changed"]
    assert files(projects) == [there]


@pytest.mark.parametrize(
    "text, run", [('{"run": "evening", "pid": 7}', "evening"), ("", "of unknown name")]
)
def test_a_run_that_holds_the_node_is_named(home, text, run):
    with under_way(home / "ai-cluster", run, text):
        assert leave()["run"] == run
    assert leave()["run"] == ""


def test_names_of_a_run_count_only_for_a_run_that_is_there(home):
    folder = home / "ai-cluster"
    for own in ("results/night/adapter/a.safetensors", "checkpoints/night/notes", "logs/night.log"):
        (folder / own).parent.mkdir(parents=True, exist_ok=True)
        (folder / own).touch()
    (folder / "checkpoints/evening/.writing-step-00000002").mkdir()
    (folder / "results/empty").mkdir()
    kept = leave(remove=["workspace"])["kept"]
    assert kept[:3] == [
        str(folder / own) for own in ("checkpoints/night", "logs/night.log", "results/night")
    ]
    assert len(files(folder)) == 3
