"""Runs whose files on a node are damaged: each is named, and hides no other."""

from __future__ import annotations

import json
import os

import pytest
from support.facts import assert_names
from support.modules import call

from hearth_controller.runs.digests import damage, observed_runs

LISTS = {"state": ["x"], "heartbeat": [], "job": [], "nodes": {}, "launches": 5, "cause": "x"}
DAMAGED = {
    "supervisor.json": [
        json.dumps(LISTS).encode(),
        json.dumps(LISTS | {"state": "finished"}).encode(),
        b'{"state": "\\ud800"}',
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"state": ' + b"9" * 9999 + b"}",
        None,
    ],
    "run.yml": [b"run: \xff\n", None],
    "metrics.jsonl": [
        b'{"kind": ["start"], "time": []}\n{"kind": "step", "when": {}}\n',
        b'{"kind": "start", "time": "0001-01-01T00:00:00+14:00"}\n',
        b'{"kind": "start", "time": "9999-12-31T23:59:59-14:00"}\n',
        b"\xff\xfe\n[]\n5\n",
        None,
    ],
    "stop": [b"\xff", None],
}
CASES = [(name, content) for name, contents in DAMAGED.items() for content in contents]


def put(folder, name, content):
    """Write a file, or a pipe if it has no content."""
    folder.mkdir(parents=True, exist_ok=True)
    if content is None:
        os.mkfifo(folder / name)
    else:
        (folder / name).write_bytes(content)


@pytest.fixture
def workspace(workspace):
    """The workspace with a run `morning` that has finished."""
    put(workspace / "results" / "morning", "supervisor.json", b'{"state": "finished"}')
    return workspace


@pytest.mark.parametrize(("name", "content"), CASES, ids=lambda each: repr(each)[:20])
def test_a_damaged_file_hides_no_other_run_and_its_run_is_named(workspace, name, content):
    put(workspace / "results" / "evening", name, content)
    runs = call("hearth_runs", workspace=str(workspace))["runs"]
    json.dumps(runs, ensure_ascii=False).encode()  # Ansible refuses half a surrogate pair
    nodes = {"desk": json.loads(json.dumps(runs))}
    assert "morning" in [run.name for run in observed_runs(nodes)]
    if name in ("supervisor.json", "run.yml"):
        assert_names(damage(nodes)[0], "desk", "evening")


def test_a_run_without_a_readable_run_yml_keeps_its_state(workspace):
    put(workspace / "results" / "morning", "run.yml", b"run: \xff\n")
    runs = call("hearth_runs", workspace=str(workspace))["runs"]
    (run,) = observed_runs({"desk": runs})
    assert (run.state, run.model) == ("finished", None)


def test_a_folder_that_is_no_run_is_left_alone(workspace):
    for name in (b"my notes", b"\xff", "fotos für oma".encode()):
        os.makedirs(os.path.join(os.fsencode(workspace / "results"), name))
    assert [run["name"] for run in call("hearth_runs", workspace=str(workspace))["runs"]] == [
        "morning"
    ]
