"""Nodes of this computer that the owner wants: the real plays, and a person at a node."""

from __future__ import annotations

import socket

import pytest
import yaml
from support.facts import assert_line, assert_names
from support.local_cluster import ended
from support.waiting import until

pytestmark = pytest.mark.cluster


def set_for(local, node: str, **variables: object) -> None:
    """Set variables of one node in the inventory."""
    hosts = local.checkout / "inventory" / "local" / "hosts.yml"
    inventory = yaml.safe_load(hosts.read_text())
    inventory["cluster"]["hosts"][node] |= variables
    hosts.write_text(yaml.safe_dump(inventory))


def word_of(local, node: str) -> str:
    path = local.workspace(node) / "lend.json"
    return path.read_text() if path.exists() else ""


@pytest.mark.rotated
def test_nodes_get_a_word_once_and_one_that_does_not_answer_is_named(local):
    local.play("playbooks/provision/workspace.yml")
    off = ("playbooks/lend.yml", "-e", "nodes=laptop", "-e", "lend=off", "-e", "until=07:00")
    assert_line(local.play(*off, "--check"), "laptop", "off", "07:00")
    assert not word_of(local, "laptop")
    assert "changed on laptop" in local.play(*off)
    assert '"off"' in word_of(local, "laptop")
    screen = local.play(*off)
    assert "laptop changed=0" in screen
    assert_line(screen, "laptop", "off", "07:00", "no run is under way")
    assert not word_of(local, "desk")
    assert_names(local.play(*off[:1], "-e", "nodes=lapto", status=2), "lapto", "desk, laptop")

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    set_for(local, "laptop", ansible_connection="ssh", ansible_port=closed)
    screen = local.play("playbooks/lend.yml", "-e", "lend=auto", status=2)
    assert_line(screen, "laptop", "not answered")
    assert_names(screen, "laptop: cannot be reached", "Nothing was written")
    assert '"off"' in word_of(local, "laptop")
    assert_line(local.play("playbooks/lend.yml"), "desk", "auto")


@pytest.mark.rotated
def test_the_commands_of_a_person_at_the_node(local):
    local.play("playbooks/provision/workspace.yml")
    command = str(local.workspace("desk") / "hearth-lend")
    assert_names(local.call(command, "off", "--for", "2h").stdout, "off until", "yours")
    assert '"off"' in word_of(local, "desk")
    assert_names(local.call(command).stdout, "off until", "No run is under way")
    local.call(command, "auto")
    assert not word_of(local, "desk")


@pytest.mark.slow
@pytest.mark.rotated
def test_a_node_that_is_away_at_the_start_is_not_measured_and_joins_when_it_lends(local):
    wanted = local.folder / "film"
    wanted.touch()
    command = f"test ! -e {wanted} || {{ echo the film is on; exit 1; }}"
    set_for(local, "laptop", lend_command=command, lend_after=0)
    settings = local.tiny(run="film", max_steps=100_000, split="auto", checkpoint_every=1000)
    play = local.start("train.yml", *settings, "-e", "wait=off")
    screen = ended(play)
    assert_line(screen, "AWAY NOW: laptop (the film is on); it joins when it lends again")
    assert_line(screen, "laptop", "its speed is not known yet")
    assert_line(screen, "desk", "tokens/s alone")
    local.until_step("film")
    assert local.record("laptop", "film")["away"] == "the film is on"
    assert list((local.workspace("laptop") / "data" / "speeds").glob("*")) == []

    wanted.unlink()
    until(lambda: local.record("laptop", "film")["state"] == "running")
    assert_line(local.play("playbooks/lend.yml"), "laptop", "film", "has the machine")
    lend = str(local.workspace("laptop") / "hearth-lend")
    assert_names(local.call(lend).stdout, "film has it")  # a launch brings it with the code
    local.play("playbooks/lend.yml", "-e", "nodes=laptop", "-e", "lend=off")
    until(lambda: local.record("laptop", "film")["away"].startswith("switched off by hand"))
    assert_line(local.play("playbooks/lend.yml"), "laptop", "off", "away since", "switched off")
    local.play("playbooks/lend.yml", "-e", "lend=auto")
    until(lambda: local.record("laptop", "film")["state"] == "running")
    local.play("playbooks/stop.yml", "-e", "run=film")
    steps = [line["step"] for line in local.metrics("film") if line["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.rotated
def test_what_cannot_lend_is_refused_by_node_and_variable(local):
    set_for(local, "laptop", lend_when="idle")
    set_for(local, "desk", lend_command="no-such-program")
    screen = local.play("train.yml", *local.tiny(parallel="fsdp"), "--check", status=2)
    assert_line(screen, "laptop: lend_when", "parallel=fsdp", "-e lend=off")
    assert_line(screen, "desk: lend_command", "parallel=fsdp")
    screen = local.play("train.yml", *local.tiny(max_steps=1), status=2)
    assert_line(screen, "desk: lend_command", "no-such-program", "not found")
    assert "Nothing was started on any node." in screen
