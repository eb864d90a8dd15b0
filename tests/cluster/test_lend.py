"""Nodes of this computer that the owner wants: the real plays, and a person at a node."""

from __future__ import annotations

import socket

import pytest
import yaml
from support.facts import assert_names
from support.house import ended
from support.lines import assert_line
from support.waiting import until

pytestmark = pytest.mark.cluster


def set_for(house, node: str, **variables: object) -> None:
    """Set variables of one node in the inventory."""
    hosts = house.checkout / "inventory" / "local" / "hosts.yml"
    inventory = yaml.safe_load(hosts.read_text())
    inventory["cluster"]["hosts"][node] |= variables
    hosts.write_text(yaml.safe_dump(inventory))


def word_of(house, node: str) -> str:
    path = house.workspace(node) / "lend.json"
    return path.read_text() if path.exists() else ""


@pytest.mark.rotated
def test_nodes_get_a_word_once_and_one_that_does_not_answer_is_named(house):
    house.play("playbooks/workspace.yml")
    off = ("playbooks/lend.yml", "-e", "nodes=laptop", "-e", "lend=off", "-e", "until=07:00")
    assert_line(house.play(*off, "--check"), "laptop", "off", "07:00")
    assert not word_of(house, "laptop")
    assert "changed on laptop" in house.play(*off)
    assert '"off"' in word_of(house, "laptop")
    screen = house.play(*off)
    assert "laptop changed=0" in screen
    assert_line(screen, "laptop", "off", "07:00", "no run is under way")
    assert not word_of(house, "desk")
    assert_names(house.play(*off[:1], "-e", "nodes=lapto", status=2), "lapto", "desk, laptop")

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    set_for(house, "laptop", ansible_connection="ssh", ansible_port=closed)
    screen = house.play("playbooks/lend.yml", "-e", "lend=auto", status=2)
    assert_line(screen, "laptop", "not answered")
    assert_names(screen, "laptop: cannot be reached", "Nothing was written")
    assert '"off"' in word_of(house, "laptop")
    assert_line(house.play("playbooks/lend.yml"), "desk", "auto")


@pytest.mark.rotated
def test_the_commands_of_a_person_at_the_node(house):
    house.play("playbooks/workspace.yml")
    command = str(house.workspace("desk") / "hearth-lend")
    assert_names(house.call(command, "off", "--for", "2h").stdout, "off until", "yours")
    assert '"off"' in word_of(house, "desk")
    assert_names(house.call(command).stdout, "off until", "No run is under way")
    house.call(command, "auto")
    assert not word_of(house, "desk")


@pytest.mark.slow
@pytest.mark.rotated(seconds=45)
def test_a_node_that_is_away_at_the_start_is_not_measured_and_joins_when_it_lends(house):
    wanted = house.folder / "film"
    wanted.touch()
    command = f"test ! -e {wanted} || {{ echo the film is on; exit 1; }}"
    set_for(house, "laptop", lend_command=command, lend_after=0)
    settings = house.tiny(run="film", max_steps=100_000, split="auto", checkpoint_every=1000)
    play = house.start("train.yml", *settings, "-e", "wait=off")
    screen = ended(play)
    assert_line(screen, "AWAY NOW: laptop (the film is on); it joins when it lends again")
    assert_line(screen, "laptop", "its speed is not known yet")
    assert_line(screen, "desk", "tokens/s alone")
    house.until_step("film")
    assert house.record("laptop", "film")["away"] == "the film is on"
    assert list((house.workspace("laptop") / "data" / "speeds").glob("*")) == []

    wanted.unlink()
    until(lambda: house.record("laptop", "film")["state"] == "running")
    assert_line(house.play("playbooks/lend.yml"), "laptop", "film", "has the machine")
    lend = str(house.workspace("laptop") / "hearth-lend")
    assert_names(house.call(lend).stdout, "film has it")  # a launch brings it with the code
    house.play("playbooks/lend.yml", "-e", "nodes=laptop", "-e", "lend=off")
    until(lambda: house.record("laptop", "film")["away"].startswith("switched off by hand"))
    assert_line(house.play("playbooks/lend.yml"), "laptop", "off", "away since", "switched off")
    house.play("playbooks/lend.yml", "-e", "lend=auto")
    until(lambda: house.record("laptop", "film")["state"] == "running")
    house.play("playbooks/stop.yml", "-e", "run=film")
    steps = [line["step"] for line in house.metrics("film") if line["kind"] == "step"]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.rotated
def test_what_cannot_lend_is_refused_by_node_and_variable(house):
    set_for(house, "laptop", lend_when="idle")
    set_for(house, "desk", lend_command="no-such-program")
    screen = house.play("train.yml", *house.tiny(parallel="fsdp"), "--check", status=2)
    assert_line(screen, "laptop: lend_when", "parallel=fsdp", "-e lend=off")
    assert_line(screen, "desk: lend_command", "parallel=fsdp")
    screen = house.play("train.yml", *house.tiny(max_steps=1), status=2)
    assert_line(screen, "desk: lend_command", "no-such-program", "not found")
    assert "Nothing was started on any node." in screen
