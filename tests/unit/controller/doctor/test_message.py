"""The findings of all nodes as one message."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth_controller.doctor.message import as_message, differing, message, shared, way_out


def test_nodes_with_the_same_finding_are_named_together():
    text = as_message({"a": ["full"], "b": ["full"], "c": ["no port"]}, [], "Nothing began.")
    assert text.splitlines() == ["a, b: full", "c: no port", "Nothing began."]


def test_facts_that_nodes_must_not_share_and_those_that_they_must_are_found():
    facts = {"a": {"id": "1f", "data": 1}, "b": {"id": "1f", "data": 1}, "c": {"id": ""}, "d": {}}
    (finding,) = shared(facts, ["id"])
    assert_names(finding, "a and b", "id 1f")
    facts["b"] = {"id": "1e", "data": 1}
    assert shared(facts, ["id"]) == []
    (finding,) = differing(facts, ["id", "data"])
    assert_names(finding, "a 1f", "b 1e")
    assert "data" not in finding


@pytest.mark.parametrize(
    ("name", "versions", "where", "cure"),
    [
        ("peft", {"tower": 1, "laptop": 2, "oldbox": 1}, "on laptop", "--tags python"),
        ("peft", {"tower": 1, "laptop": 2}, "the node that is wrong", "--tags python"),
        ("model", {"tower": 1, "laptop": 2, "oldbox": 1}, "on laptop", "remove the folder"),
    ],
)
def test_the_odd_one_out_is_named_where_it_is_known_and_with_its_cure(name, versions, where, cure):
    (finding,) = differing({node: {name: v} for node, v in versions.items()}, [name])
    assert_names(finding, name, *(f"{node} {v}" for node, v in versions.items()), where, cure)


AWAY, THERE = [{"skipped": True}, {"unreachable": True, "msg": "timed out"}], [{"facts": {}}]


@pytest.mark.parametrize(
    ("results", "facts"),
    [
        ({"tower": THERE, "laptop": AWAY, "oldbox": THERE}, ["laptop", "-e nodes=tower,oldbox"]),
        ({"tower": THERE, "oldbox": THERE}, []),
        ({"tower": AWAY, "oldbox": AWAY}, []),
        ({}, []),
    ],
)
def test_nodes_that_answered_are_the_way_to_go_on_without_one_that_did_not(results, facts):
    said = way_out(results)
    assert bool(said) == bool(facts)
    assert_names(said, *facts)


def test_the_way_on_is_said_last_and_only_where_there_is_one():
    results = {"tower": THERE, "laptop": AWAY, "oldbox": THERE}
    playing = ["tower", "laptop"]  # oldbox failed earlier
    said = message(results, playing, then="Nothing began.").splitlines()
    assert [line.partition(":")[0] for line in said] == ["laptop", "oldbox", "Nothing began."]
    assert_names(said[0], "timed out")
    (*same, way) = message(results, playing, then="Nothing began.", without=True).splitlines()
    assert same == said
    assert_names(way, "laptop, oldbox", "-e nodes=tower")
