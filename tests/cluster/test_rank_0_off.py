"""The verbs with the machine of rank 0 off: real plays, on two nodes of this computer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.facts import assert_line, assert_names
from support.programs import run
from support.repository import ROOT

pytestmark = pytest.mark.cluster
NODES = ["desk", "laptop", "oldbox"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with an inventory whose first node is off, and the files of a run on the others."""
    folder = tmp_path_factory.mktemp("home")
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    hosts = {
        node: {
            "cluster_address": f"127.0.0.{number}",
            "hearth_workspace": str(folder / node),
            "ansible_connection": "local",
        }
        for number, node in enumerate(NODES, start=1)
    }
    hosts["desk"] |= {"ansible_connection": "ssh", "ansible_port": closed}
    inventory = folder / "inventory"
    inventory.mkdir()
    (inventory / "hosts.yml").write_text(yaml.safe_dump({"cluster": {"hosts": hosts}}))
    metrics = (ROOT / "tests/fixtures/run/evening/metrics.jsonl").read_text()
    for node in NODES[1:]:
        record = {
            **{"run": "evening", "node": node, "rank": NODES.index(node), "pid": 1},
            **{"state": "finished", "cause": None, "generation": 2, "nodes": NODES},
            **{"began": "2026-11-22T03:01:00Z", "since": "2026-11-22T03:02:00Z"},
            **{"script": "", "job": None, "launches": [], "missing": ["desk"]},
        }
        results = folder / node / "results" / "evening"
        (results / "adapter").mkdir(parents=True)
        (folder / node / "logs").mkdir()
        (folder / node / "logs" / "evening.log").write_text("hearth: the log\n")
        (results / "adapter" / "from").write_text(node)
        shutil.copy(ROOT / "tests/fixtures/run/evening/run.yml", results)
        (results / "supervisor.json").write_text(json.dumps(record))
        # The laptop was away, too, when the last steps were done.
        lines = metrics.splitlines(keepends=True)
        (results / "metrics.jsonl").write_text("".join(lines[:-9] if node == "laptop" else lines))
    return folder


def played(home: Path, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = [
        "-i",
        str(home / "inventory"),
        f"playbooks/{verb}.yml",
        "-e",
        f"_plan_runs={home}/runs",
    ]
    return run("ansible-playbook", *given, *words, cwd=ROOT, PATH=path)


@pytest.mark.rotated("the machine of rank 0 is off")
def test_the_files_come_from_the_node_that_reached_furthest(home):
    done = played(home, "attach", "-e", "run=evening", "-e", "_attach_patience=10")
    assert done.returncode == 0, done.stdout + done.stderr
    assert_names(done.stdout, "evening finished", "80 of 80 steps")
    assert_line(done.stdout, "not seen to its end", "desk")
    folder = home / "runs" / "evening"
    assert (folder / "adapter" / "from").read_text() == "oldbox"
    theirs = home / "oldbox" / "results" / "evening" / "metrics.jsonl"
    assert (folder / "metrics.jsonl").read_text() == theirs.read_text()
    assert {path.name for path in (folder / "logs").iterdir()} == {"laptop.log", "oldbox.log"}


@pytest.mark.rotated("the machine of rank 0 is off")
def test_state_and_logs_are_shown_and_the_node_that_is_off_is_named(home):
    done = played(home, "status")
    assert_line(done.stdout, "evening", "finished", "80 of 80")
    assert_names(done.stdout, "desk (silent)", "desk does not answer")
    done = played(home, "logs", "-e", "run=evening")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("hearth: the log") == 2
    assert_line(done.stdout, "not answered", "desk")
