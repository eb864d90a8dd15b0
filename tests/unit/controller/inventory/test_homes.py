"""Nodes that share a home: who they are, and the file of the inventory that keeps them apart."""

from __future__ import annotations

import pytest
import yaml

from hearth_controller.inventory.homes import file_of, settings, sharing


@pytest.mark.parametrize(
    ("seen", "shares"),
    [
        ({}, []),
        ({"laptop": ["t"], "oldbox": ["t", "l"]}, ["tower", "laptop", "oldbox"]),
        ({"tower": ["l", "o"]}, ["tower", "laptop", "oldbox"]),  # it was the last one to look
        ({"oldbox": ["t"]}, ["tower", "oldbox"]),
        ({"laptop": ["of an earlier play", ""]}, []),  # in a home that was copied
    ],
)
def test_nodes_share_a_home_if_one_sees_what_another_has_just_written(seen, shares):
    nodes = ("tower", "laptop", "oldbox")
    marks = {node: {"token": node[0], "seen": seen.get(node, [])} for node in nodes}
    assert sharing(marks) == shares


def test_a_node_that_is_off_or_cannot_write_shares_nothing():
    assert sharing({"a": {"unreachable": True}, "b": {"token": "", "seen": [""]}}) == []


@pytest.mark.parametrize("shared", [True, False])
def test_each_node_then_has_a_workspace_of_its_own(shared):
    read = yaml.safe_load(settings("~/ai-cluster", shared))
    assert read["hearth_workspace"] == "~/ai-cluster/{{ inventory_hostname }}"
    assert read.get("hearth_shared") == ("~/ai-cluster" if shared else None)


@pytest.mark.parametrize("group", ["", "group_vars/cluster", "group_vars/all.yml"])
@pytest.mark.parametrize("named", [".", "hosts.yml"])
def test_the_settings_stand_beside_the_inventory(tmp_path, group, named):
    (tmp_path / "hosts.yml").touch()
    if group.endswith(".yml"):
        (tmp_path / "group_vars").mkdir()
        (tmp_path / group).touch()
    elif group:
        (tmp_path / group).mkdir(parents=True)
    sources = ["tower,laptop", str(tmp_path / named)]
    assert file_of(sources) == tmp_path / "group_vars/cluster/shared_home.yml"


def test_settings_that_ansible_would_not_read_are_not_written(tmp_path):
    assert file_of(["tower,laptop"]) is None
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/cluster.yml").touch()  # a folder would hide it
    assert file_of([str(tmp_path)]) is None
