"""The process of a finished run that shares its result: which node starts it, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import psutil
import pytest
from support.waiting import until

from hearth.base.aside import pids_aside
from hearth.supervisor.afterwards import do_afterwards
from hearth.supervisor.spec import spec_of, with_secrets

NOTES = """\
#!{python}
import json, os, sys
print("shared", file=sys.stderr, flush=True)
with open("{folder}/noted", "w") as file:
    json.dump([sys.argv[1:], dict(os.environ), sys.stdin.read()], file)
"""
WAITS = """\
#!/bin/sh
sleep 300 &
echo $! > {folder}/child
wait
"""


@pytest.fixture
def spec(tmp_path):
    """Return a function that makes the spec of node a, whose Python is this program instead."""

    def make(program, **values):
        python = tmp_path / "python"
        python.write_text(program.format(python=sys.executable, folder=tmp_path))
        python.chmod(0o755)
        common = {"run": "r", "nodes": ["a", "b"], "addresses": ["127.0.0.1", "127.0.0.2"]}
        common |= {"ports": [1, 1], "nprocs": [1, 1]}
        own = {"node": "a", "rank": 0, "nproc": 1, "python": str(python), "token": "t"}
        given = common | own | {"workspace": str(tmp_path)} | values
        (tmp_path / "logs").mkdir(exist_ok=True)
        return spec_of({"afterwards": True, "hearth": "hearth -i x"} | given, "spec")

    return make


def shared(spec, absent=(), wanted=lambda: ""):
    said = []
    asyncio.run(do_afterwards(spec, frozenset(absent), wanted, said.append))
    return said


def test_the_token_for_the_push_reaches_that_process_and_no_rank(spec, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_ofanotherperson")
    file = tmp_path / "r.json"
    file.with_suffix(".secrets").write_text(json.dumps({"HEARTH_PUSH_TOKEN": "hf_planted"}))
    full = with_secrets(spec(NOTES), file)
    assert "hf_planted" not in str(full.environment) + repr(full)
    shared(full)
    words, environment, asked = json.loads((tmp_path / "noted").read_text())
    assert environment["HF_TOKEN"] == "hf_planted"
    assert words[:3] == ["-m", "hearth.after", "finish"]
    assert "hf_planted" not in " ".join(words)
    assert json.loads(asked) == {"hearth": "hearth -i x"}
    assert full.log.read_text() == "shared\n"
    assert pids_aside() == frozenset()


@pytest.mark.parametrize(
    ("values", "absent", "does"),
    [
        ({}, (), True),
        ({"afterwards": False}, (), False),
        ({"node": "b", "rank": 1}, (), False),
        ({"node": "b", "rank": 1}, ("a",), True),
    ],
)
def test_the_first_node_that_is_there_does_it(spec, tmp_path, values, absent, does):
    assert bool(shared(spec(NOTES, **values), absent)) == does
    assert (tmp_path / "noted").exists() == does


def test_it_makes_way_with_all_that_it_has_started(spec, tmp_path):
    child = tmp_path / "child"
    said = shared(
        spec(WAITS), wanted=lambda: "the owner" * (child.exists() and bool(child.stat().st_size))
    )
    assert "the owner" in said[-1]
    pid = int(child.read_text())
    until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")
    assert os.getpid() != pid
