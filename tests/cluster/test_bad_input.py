"""Every wrong word ends before anything is started: one message, with the error and the way out."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from support.facts import assert_line, assert_names
from support.local_cluster import NODES, LocalCluster
from support.stand_in_hub import stand_in_hub

pytestmark = pytest.mark.cluster

LOCAL = "ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}"


def refused(local: LocalCluster, *arguments: object, **changes: str) -> str:
    """Play train.yml, which must refuse; return its screen."""
    screen = local.play("train.yml", *arguments, status=2, **changes)
    assert "Traceback" not in screen
    assert "{'" not in screen
    assert "Nothing was started" in screen
    assert not list(local.runs.glob("*"))
    for node in NODES:
        assert not list(local.workspace(node).glob("results/*/supervisor.json"))
        assert not list(local.workspace(node).glob("config/*.json"))
    return screen


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"split": "4:2:1"}, ["4:2:1", "3 shares", "2 ranks"]),
        ({"lora_targets": "nope"}, ["desk, laptop: lora_targets", "nope"]),
    ],
    ids=["split", "lora_targets"],
)
def test_a_wrong_setting_is_named(shared, settings, facts):
    assert_names(refused(shared, *shared.tiny(**settings)), *facts)


def test_all_problems_are_shown_at_once(shared):
    wrong = {
        "model": "smollm-135m",
        "max_stps": 3,
        "max_steps": "many",
        "dataset": "/nowhere/data.jsonl",
        "run": "../up",
    }
    words = ("modle=x", "epochs=few", "meeting_port=80", "wait=perhaps", "global_batch=8")
    typed = [part for word in words for part in ("-e", word)]
    screen = refused(shared, *shared.tiny(**wrong), *typed)
    assert_names(screen, "'smollm-135m'", "'smollm2-135m'", "'max_stps'", "'max_steps'", "integer")
    assert_names(screen, "/nowhere/data.jsonl", "run: '../up'", "'model'", "epochs: 'few'")
    assert_names(screen, "-e meeting_port: 80", "'perhaps'", "global_batch: given twice")


@pytest.mark.rotated
def test_a_partition_is_refused_without_slurm(shared):
    screen = refused(shared, *shared.tiny(), "-e", "partition=gpu")
    assert_names(screen, "--partition=gpu", "-e launcher=slurm")


@pytest.mark.rotated
def test_a_limit_is_refused_with_the_reason(shared):
    screen = refused(shared, *shared.tiny(), "--limit", "desk")
    assert_names(screen, "all nodes")


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ("[other]\nbox\n", ["group 'cluster'"]),
        (
            "[cluster]\none node_rank=0 cluster_address=127.0.0.1\n"
            "two node_rank=2 cluster_address=127.0.0.1\n",
            ["0, 2", "cluster_address 127.0.0.1"],
        ),
    ],
    ids=["no-group", "gap-and-address"],
)
def test_a_wrong_inventory_is_refused(shared, tmp_path, hosts, words):
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(hosts)
    screen = refused(shared, "-i", inventory, *shared.tiny())
    for word in words:
        assert word in screen


@pytest.mark.rotated
def test_findings_of_all_nodes_come_in_one_message(local, tmp_path):
    """A port that is taken at desk's address only, and a workspace that cannot be, on laptop."""
    (local.folder / "data" / "hearth").mkdir(parents=True)
    local.workspace("laptop").write_text("in the way")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        screen = refused(local, *local.tiny(), "-e", f"meeting_port={port}")
    assert f"desk: port {port}" in screen
    assert_line(screen, "laptop", "workspace")
    assert screen.count("Nothing was started on any node.") == 1


@pytest.mark.rotated
def test_the_token_of_the_shell_reaches_the_hub_and_is_shown_nowhere(local):
    token = "hf_wrongbutsecret0123456789"
    with stand_in_hub() as hub:
        hub.models["house/secret-model"] = None
        gated = local.tiny(model="house/secret-model")
        screen = refused(local, *gated, HF_TOKEN=token, **hub.variables)
    assert_line(screen, "Hub", "token")
    assert token not in screen


@pytest.mark.rotated
def test_an_address_for_messages_that_cannot_be_used_is_told_by_its_scheme_alone(shared):
    token = "tk_wrongbutsecret"
    screen = refused(shared, *shared.tiny(), "-e", f"hearth_notify={token}")
    assert_line(screen, "hearth_notify", "(-e)", "no scheme")
    assert token not in screen
    every = refused(shared, *shared.tiny(), HEARTH_NOTIFY=f"ntfy://topic ntffy://{token}")
    assert_line(every, "desk, laptop", "hearth_notify", "ntffy://", "docs/runs.md")
    assert token not in every


@pytest.fixture
def half(local, tmp_path) -> Path:
    """An inventory of two nodes, one of them off; the other has a run of both on record."""
    if not Path("/usr/bin/ssh").exists():
        pytest.skip("there is no ssh here to fail")
    inventory = tmp_path / "hosts.ini"
    inventory.write_text(
        "[cluster]\n"
        f"near cluster_address=127.0.0.1 {LOCAL}\n"
        "far cluster_address=127.0.0.9 ansible_host=127.0.0.9 ansible_port=9 ansible_user=guest\n"
        "[cluster:vars]\n"
        f"hearth_workspace={local.folder}/data/hearth/{{{{ inventory_hostname }}}}\n"
        "hearth_python={{ ansible_playbook_python }}\n"
    )
    record = {
        "state": "finished",
        "heartbeat": "2026-11-20T20:09:00Z",
        "nodes": ["far", "near", "sold"],
    }
    results, logs = (local.workspace("near") / name for name in ("results/evening", "logs"))
    results.mkdir(parents=True)
    (results / "supervisor.json").write_text(json.dumps(record))
    logs.mkdir()
    (logs / "evening.log").write_text("a word of near\n")
    return inventory


@pytest.mark.rotated
def test_a_node_out_of_reach_is_named_and_the_others_are_checked(local, half):
    screen = refused(local, "-i", half, *local.tiny(epochs=1))
    assert_line(screen, "far", "reached")


@pytest.mark.rotated
def test_logs_and_curves_that_a_node_out_of_reach_has_are_said_to_be_there(local, half):
    def show(verb: str, *words: str, status: int = 0) -> str:
        return local.play(f"playbooks/{verb}.yml", "-i", half, *words, status=status)

    screen = show("logs")
    assert "a word of near" in screen
    assert_line(screen, "not answered", "far, sold")
    screen = show("logs", "-e", "nodes=far", status=2)
    assert_line(screen, "far", "reached")
    screen = show("logs", "-e", "nodes=sold", status=2)
    assert_line(screen, "sold", "near, far")
    screen = show("dashboard", status=2)
    assert_line(screen, "far", "reached")
    assert_line(screen, "curves", "evening")
    screen = show("dashboard", "-e", "serve=off")
    assert "not answered: far" in screen
