"""Runs by path or name, and files of runs that are damaged: each reader names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import ConfigError
from hearth.config import newest_run, read_run, resolve_run, run_of, run_text, write_run
from hearth.config.run import find_run
from hearth_controller.script.run import read_script, script_of

TEXT = run_text(resolve_run({"model": "smollm2-135m", "run": "evening"}, Path("/nowhere")))
CONTENT = yaml.safe_load(TEXT)
SCRIPT = {
    "run": "evening",
    "created": "2026-11-29T07:00:00+00:00",
    "script": {
        "folder": "/x",
        "script": "train.py",
        "arguments": ["--lr", "1"],
        "data": None,
        "code_sha256": "0" * 64,
        "data_sha256": None,
    },
}


@pytest.mark.parametrize("content", [b"run: \xff\xfe\n", b"\x00", b"[", b"5", b"- a", b""])
def test_a_file_that_is_no_record_of_a_run_is_named(tmp_path, content):
    path = tmp_path / "night" / "run.yml"
    path.parent.mkdir()
    path.write_bytes(content)
    with refuses(ConfigError, str(path)):
        read_run(path)
    assert read_script(path) is None
    write_run(run_of(TEXT, "run.yml"), tmp_path / "evening" / "run.yml")
    assert newest_run(tmp_path) == "evening"


def test_a_pipe_in_its_place_is_not_waited_for(tmp_path):
    path = tmp_path / "night" / "run.yml"
    path.parent.mkdir()
    os.mkfifo(path)
    with refuses(ConfigError, str(path)):
        read_run(path)
    assert read_script(path) is None
    with refuses(ConfigError, "no run"):
        newest_run(tmp_path)


@pytest.mark.parametrize("name", CONTENT)
@pytest.mark.parametrize("value", [[[]], {"a": [5]}, 5, None, "x", True, "\ud800"])
def test_a_field_of_another_type_is_found_where_it_is_read(name, value):
    text = yaml.safe_dump(CONTENT | {name: value})
    try:
        run = run_of(text, "night/run.yml")
    except ConfigError as error:
        assert all("night/run.yml" in finding for finding in error.findings)
    else:
        assert isinstance(run.name, str) and isinstance(run.created, str)
        assert all(isinstance(each, str) for each in run.origins.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.sampled_from([*CONTENT]), JSON, max_size=2),
    st.dictionaries(st.sampled_from([*SCRIPT["script"]]), JSON, max_size=2),
    st.dictionaries(st.sampled_from([*CONTENT["settings"]]), JSON, max_size=2),
)
def test_whatever_a_file_holds_the_reader_says_so_in_its_own_error(fields, script, chosen):
    for content in (
        CONTENT | fields,
        CONTENT | {"settings": CONTENT["settings"] | chosen},
        SCRIPT | {"script": SCRIPT["script"] | script},
    ):
        for reader in (run_of, script_of):
            try:
                reader(yaml.safe_dump(content), "run.yml")
            except ConfigError as error:
                assert all("run.yml" in finding for finding in error.findings)


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
