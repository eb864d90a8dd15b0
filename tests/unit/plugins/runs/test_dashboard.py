"""TensorBoard on a node: when there is one, and the message on it."""

from __future__ import annotations

import json
import os
import shlex
import socket

import pytest
from ansible.module_utils.hearth_node.runs import pages
from ansible.module_utils.hearth_node.runs.dashboard import PAGE, command
from ansible.module_utils.hearth_node.runs.pages import PageError
from hypothesis import given
from hypothesis import strategies as st
from support.digests import digest
from support.facts import assert_names, refuses
from support.modules import call

from hearth_controller.runs.pages import describe_dashboard, login, nodes_with_curves
from hearth_controller.script.run import ScriptRun, script_text

HOME = {
    "inventory_hostname": "tower",
    "ansible_host": "192.168.1.40",
    "ansible_user": "you",
    "ansible_ssh_common_args": "-o HostKeyAlias=tower -o 'UserKnownHostsFile=\"/a b/known\"'",
}
RUNNING = {"run": "evening", "port": 6006, "pid": 4711}


def answer(offline=(), asked=True) -> dict:
    kept = {"offline": list(offline), "wandb": "/env/bin/wandb", "wandb_asked": asked}
    return {"served": RUNNING, **kept}


@pytest.fixture
def workspace(workspace):
    """The workspace with the curves of the run `evening`."""
    (workspace / "results/evening/tensorboard").mkdir(parents=True)
    return workspace


def call_dashboard(workspace, state="started", check=False, run="evening") -> dict:
    given = {"workspace": str(workspace), "python": "/nowhere/bin/python"}
    return call("hearth_page", check, page="dashboard", state=state, run=run, **given)


# -- on the node -----------------------------------------------------------------------------------


def test_without_curves_there_is_nothing_to_show_and_a_script_never_has_any(workspace):
    said = call_dashboard(workspace, run="morning")
    assert said["failed"]
    assert_names(said["msg"], "'morning'")
    assert "script" not in said["msg"]
    run = ScriptRun("morning", "2026-11-22", "/p", "train.py", (), None, "0" * 64, None)
    folder = workspace / "results" / "morning"
    folder.mkdir()
    (folder / "run.yml").write_text(script_text(run))
    said = call_dashboard(workspace, run="morning")
    assert said["failed"]
    assert_names(said["msg"], "'morning'", "script")


@pytest.mark.parametrize(
    "record",
    [
        *("", "{", "[]", '"x"'),
        json.dumps(
            {**RUNNING, "pid": os.getpid(), "command": ["python"]}
        ),  # a process that is none
    ],
    ids=["empty", "torn", "list", "text", "another process"],
)
def test_what_is_no_record_of_a_tensorboard_is_none(workspace, record):
    (workspace / "config" / "tensorboard.json").write_text(record)
    assert PAGE.read_record(str(workspace)) == {}
    assert (
        call_dashboard(workspace, "stopped")["changed"] is False
    )  # and this process is still here


def test_in_check_mode_nothing_is_started_and_offline_runs_come_by_launch(workspace):
    kept = workspace / "results" / "evening" / "wandb"
    for name in ("offline-run-20261122_2-evening", "offline-run-20261122_1-evening", "run-x"):
        (kept / name).mkdir(parents=True)
    said = call_dashboard(workspace, check=True)
    assert said["changed"] is True
    assert not (workspace / "config" / "tensorboard.json").exists()
    assert said["offline"] == [str(kept / f"offline-run-20261122_{n}-evening") for n in (1, 2)]


@pytest.mark.parametrize(("origin", "is_asked"), [("default", False), ("-e", True)])
def test_whether_somebody_asked_for_wandb_is_on_record(workspace, origin, is_asked):
    folder = workspace / "results" / "evening"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yml").write_text(f"settings:\n  wandb: auto\norigins:\n  wandb: {origin}\n")
    assert call_dashboard(workspace, check=True)["wandb_asked"] == is_asked


def test_what_is_not_installed_is_said(workspace):
    said = call_dashboard(workspace)
    assert said["failed"]
    assert "/nowhere/bin/python" in said["msg"]
    assert PAGE.read_record(str(workspace)) == {}


@pytest.mark.parametrize(("looks", "starts"), [(2, True), (9, False)])
def test_a_process_without_a_command_line_yet_has_not_ended(workspace, monkeypatch, looks, starts):
    # Stand-ins: what /proc and the port say of it, look by look.
    seen, answered = iter([False] * looks + [True] * 90), iter([False] * 8 + [True])
    monkeypatch.setattr(pages, "alive", lambda _: next(seen))
    monkeypatch.setattr(pages.Page, "answers", lambda *_: next(answered))
    monkeypatch.setattr(pages, "_begin", lambda *_: 0)
    monkeypatch.setattr(pages.Page, "stop", lambda *_: None)

    def begun():
        words = command(str(workspace), "evening", "python", 6006)
        return PAGE.start(str(workspace), "evening", 6006, words, {})

    if starts:
        assert begun()["port"] == 6006
    else:
        with pytest.raises(PageError, match="TensorBoard"):
            begun()


def test_a_port_that_is_taken_is_not_taken_twice():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        with refuses(PageError, taken):
            PAGE.free_port(taken)
    assert PAGE.free_port() >= 1024


# -- for a person ----------------------------------------------------------------------------------


def test_the_tunnel_is_a_command_to_type_as_it_is():
    lines = describe_dashboard(answer(), "tower", HOME, False, "hearth -i inventory/home")
    assert_names(lines[0], "evening", "tower", "process 4711")
    tunnel = next(line for line in lines if "tunnel" in line).split("tunnel", 1)[1].strip()
    assert shlex.split(tunnel) == [
        *("ssh", "-N", "-L", "6006:127.0.0.1:6006", "-o", "HostKeyAlias=tower"),
        *("-o", 'UserKnownHostsFile="/a b/known"', "you@192.168.1.40"),
    ]
    text = "\n".join(lines)
    assert "http://localhost:6006/" in text
    assert "hearth -i inventory/home dashboard --serve off" in text
    assert "wandb" not in text
    assert describe_dashboard({"served": {}}, "tower", HOME, False, "x") == []


def test_an_offline_run_is_sent_with_one_command_and_no_key_in_it():
    kept = ["/w s/results/evening/wandb/offline-run-1", "/w s/results/evening/wandb/offline-run-2"]
    here = describe_dashboard(answer(kept), "desk", {"inventory_hostname": "desk"}, True, "x")
    assert not any("ssh" in line for line in here)
    sync = next(line for line in here if " sync " in line).split("wandb, then", 1)[1]
    assert shlex.split(sync) == ["/env/bin/wandb", "sync", *kept]
    unasked = describe_dashboard(answer(kept, asked=False), "tower", HOME, False, "x")
    assert not any("wandb" in line for line in unasked)
    there = describe_dashboard(answer(kept), "tower", HOME, False, "x")
    sync = shlex.split(next(line for line in there if " sync " in line).split("then", 1)[1])
    assert sync[:2] == ["ssh", "-t"]
    assert shlex.split(sync[-1]) == ["/env/bin/wandb", "sync", *kept]
    assert not any("KEY" in line for line in [*here, *there])


WORDS = st.text("a1./ '")


@given(WORDS, WORDS, WORDS, st.integers(0, 65535))
def test_whatever_the_inventory_says_is_one_word_each(host, user, key, port):
    variables = {
        "inventory_hostname": "tower",
        "ansible_host": host,
        "ansible_user": user,
        "ansible_port": port,
        "ansible_ssh_private_key_file": key,
    }
    _, *options, place = shlex.split(" ".join(login(variables)))
    assert options == ["-i", key] * bool(key) + ["-p", str(port)] * bool(port)
    assert place == (f"{user}@" if user else "") + (host or "tower")


# -- whose curves ----------------------------------------------------------------------------------


def test_the_newest_curves_of_a_run_are_those_of_its_last_leader_that_answers():
    other = {**digest("desk"), "name": "morning", "curves": 1.0}
    known = {
        "desk": [other, digest("desk", curves=600.0)],
        "laptop": [digest("laptop", curves=5.0)],
        "oldbox": None,
        "nas": [],
    }
    assert nodes_with_curves("evening", known) == ["laptop", "desk"]
    assert nodes_with_curves("morning", known) == ["desk"]
    assert nodes_with_curves("evening", known | {"laptop": None}) == ["desk"]
    assert nodes_with_curves("evening", {"laptop": [digest("laptop")]}) == []
