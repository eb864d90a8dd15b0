"""playbooks/chat.yml on a node and what a person is told: the command, the endpoint, the tunnel."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.runs.chat import PAGE
from support.facts import assert_names
from support.modules import call
from support.waiting import until

from hearth_controller.runs.pages import describe_chat

HOME = {"inventory_hostname": "tower", "ansible_host": "192.168.1.40", "ansible_user": "you"}

# A stand-in of chat.py: answers at once, without a model.
SERVER = """
import http.server, sys
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(b'{"data": [{"id": "base"}, {"id": "adapter"}]}')
if "broken" in sys.argv: sys.exit("hearth: error: no memory")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[-1])), Answers).serve_forever()
"""


@pytest.fixture
def workspace(workspace: Path) -> Path:
    """The workspace with the adapter of the run `evening`."""
    (workspace / "results/evening/adapter").mkdir(parents=True)
    (workspace / "scripts").mkdir(exist_ok=True)
    (workspace / "scripts/chat.py").write_text(SERVER)
    return workspace


def call_chat(workspace, state="shown", check=False, run="evening", python=sys.executable, **more):
    given = {"workspace": str(workspace), "python": python, "run": run, **more}
    return call("hearth_page", check, page="chat", state=state, **given)


def test_the_command_talks_to_the_run_where_it_lies(workspace):
    said = call_chat(workspace, models="/models")
    assert said["changed"] is False
    assert said["command"] == [sys.executable, str(workspace / "scripts/chat.py"), "evening"]
    assert said["variables"] == {"HEARTH_WORKSPACE": str(workspace), "HEARTH_MODELS": "/models"}


@pytest.mark.parametrize("missing", ["result", "python", "program"])
def test_what_is_missing_is_named(workspace, missing):
    if missing == "program":
        (workspace / "scripts/chat.py").unlink()
    python = "/nowhere/python" if missing == "python" else sys.executable
    said = call_chat(workspace, python=python, run="morning" if missing == "result" else "evening")
    assert said["failed"]
    facts = {"result": "'morning'", "python": python, "program": "--tags workspace"}
    assert_names(said["msg"], facts[missing])


def test_a_checkpoint_is_enough(workspace):
    (workspace / "checkpoints/night/step-00000010").mkdir(parents=True)
    assert call_chat(workspace, run="night")["changed"] is False


def test_an_endpoint_is_started_once_named_and_ended(workspace):
    try:
        assert call_chat(workspace, "started", check=True)["served"] == {}
        begun = call_chat(workspace, "started")
        assert begun["changed"] is True
        assert begun["served"]["models"] == ["base", "adapter"]
        again = call_chat(workspace, "started")
        assert again["changed"] is False
        assert again["served"] == begun["served"]
    finally:
        ended = call_chat(workspace, "stopped")
    assert ended["changed"] is True
    assert not PAGE.answers(begun["served"]["port"])
    assert call_chat(workspace, "stopped")["changed"] is False


def test_an_endpoint_that_does_not_start_says_why(workspace):
    (workspace / "results/broken/adapter").mkdir(parents=True)
    said = call_chat(workspace, "started", run="broken")
    assert said["failed"]
    assert_names(said["msg"], "no memory")
    assert PAGE.read_record(str(workspace)) == {}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("the endpoint has ended: SIGTERM arrived\n", "SIGTERM arrived"),
        ("Traceback:\nRuntimeError: out of memory\n", "RuntimeError: out of memory"),
        ("evening answers at …\n", "killed"),
    ],
)
def test_an_endpoint_that_is_gone_by_itself_leaves_why(workspace, said, why):
    begun = call_chat(workspace, "started")["served"]
    os.kill(begun["pid"], signal.SIGKILL)
    until(lambda: PAGE.read_record(str(workspace)) == {})
    log = Path(PAGE.log_file(str(workspace)))
    log.write_text(said)
    gone = call_chat(workspace)["gone"]
    assert_names(gone, "evening", str(begun["port"]), why, str(log))
    assert gone in "\n".join(described({}, gone=gone))
    ended = call_chat(workspace, "stopped")
    assert (ended["changed"], ended["note"]) == (False, gone)
    assert call_chat(workspace)["gone"] == call_chat(workspace, "stopped")["note"] == ""


def described(endpoint, local=False, busy="", gone=""):
    answer = {
        "gone": gone,
        "command": ["/env/bin/python", "/w s/scripts/chat.py", "evening"],
        "variables": {"HEARTH_WORKSPACE": "/w s"},
        "served": endpoint,
        "busy": busy,
    }
    return describe_chat(answer, "evening", "tower", HOME, local, "hearth -i home")


def after(lines, title):
    return shlex.split(next(line for line in lines if title in line).split(title, 1)[1])


def test_the_command_can_be_typed_as_it_is_told():
    there = after(described({}), "talk to it")
    assert there[:3] == ["ssh", "-t", "you@192.168.1.40"]
    here = after(described({}, local=True), "talk to it")
    assert shlex.split(there[3]) == here
    assert here == [
        *("env", "HEARTH_WORKSPACE=/w s", "/env/bin/python", "/w s/scripts/chat.py", "evening")
    ]
    assert "chat evening --serve" in "\n".join(described({}))


def test_the_way_to_an_endpoint_and_its_end_are_told():
    endpoint = {"run": "evening", "port": 8001, "pid": 4711, "models": ["base", "adapter"]}
    lines = described(endpoint, busy="third")
    assert_names(lines[0], "tower", "base", "adapter", "4711")
    tunnel = after(lines, "tunnel")
    assert tunnel == ["ssh", "-N", "-L", "8001:127.0.0.1:8001", "you@192.168.1.40"]
    assert_names("\n".join(lines), "http://localhost:8001/v1", "chat --serve off", "third")
    assert not any("ssh" in line for line in described(endpoint, local=True))
