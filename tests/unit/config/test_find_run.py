"""A run by its path or its name."""

from __future__ import annotations

from support.facts import refuses

from hearth.base.errors import ConfigError
from hearth.config.run import find_run


def test_a_run_is_found_by_path_and_by_name(tmp_path, monkeypatch):
    folder = tmp_path / "runs" / "evening"
    folder.mkdir(parents=True)
    (folder / "run.yml").touch()
    assert find_run("evening", tmp_path / "runs") == folder
    assert find_run(str(folder), tmp_path / "elsewhere") == folder
    monkeypatch.chdir(tmp_path)
    assert find_run("runs/evening/", tmp_path / "elsewhere") == folder


def test_a_name_is_that_of_a_run_also_where_a_folder_of_that_name_is_near(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "evening", tmp_path / "workspace" / "evening"):
        folder.mkdir(parents=True)
        (folder / "run.yml").touch()
    assert find_run("evening", tmp_path / "workspace") == tmp_path / "workspace" / "evening"
    assert find_run("./evening", tmp_path / "elsewhere") == tmp_path / "evening"
    assert find_run("evening", tmp_path / "elsewhere") == tmp_path / "evening"


def test_what_is_none_is_told_what_it_is_and_what_there_is(tmp_path):
    runs = tmp_path / "runs"
    with refuses(ConfigError, "evening", runs):
        find_run("evening", runs)
    (runs / "evening").mkdir(parents=True)
    (runs / "evening" / "run.yml").touch()
    with refuses(ConfigError, "evning", "did you mean 'evening'"):
        find_run("evning", runs)
    for name, fact in (("adapter_config.json", "adapter"), ("config.json", "model")):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).touch()
        with refuses(ConfigError, folder, fact):
            find_run(str(folder), runs)
