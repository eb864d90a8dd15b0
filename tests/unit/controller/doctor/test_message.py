"""The findings of all nodes as one message."""

from __future__ import annotations

import pytest

from hearth_controller.doctor.message import (
    as_message,
    differing,
    findings_of,
    message,
    shared,
    way_out,
)


def test_nodes_with_the_same_finding_are_named_together():
    text = as_message({"a": ["full"], "b": ["full"], "c": ["no port"]}, [], "Nothing began.")
    assert text.splitlines() == ["a, b: full", "c: no port", "Nothing began."]


def test_facts_that_nodes_must_not_share_are_found():
    facts = {"a": {"machine_id": "1f"}, "b": {"machine_id": "1f"}, "c": {"machine_id": ""}, "d": {}}
    (finding,) = shared(facts, ["machine_id"])
    assert finding.startswith("a and b have the same machine_id 1f")


def test_an_unreachable_node_is_a_finding():
    found = findings_of(
        [{"unreachable": True, "msg": "Task failed: Failed to connect"}, {"skipped": True}]
    )
    assert found == ["cannot be reached: Failed to connect"]


AWAY, THERE = [{"skipped": True}, {"unreachable": True, "msg": "timed out"}], [{"facts": {}}]


def test_nodes_that_answered_are_the_way_to_go_on_without_one_that_did_not():
    assert way_out({"tower": THERE, "laptop": AWAY, "oldbox": THERE}) == (
        "To go on without laptop: -e nodes=tower,oldbox"
    )
    assert way_out({"tower": THERE, "oldbox": THERE}) == ""
    assert way_out({"tower": AWAY, "oldbox": AWAY}) == ""
    assert way_out({}) == ""


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"without": True}, "\nTo go on without laptop: -e nodes=tower"),
        ({}, ""),
    ],
)
def test_the_way_on_is_said_last_and_only_where_there_is_one(asked, said):
    results = {"tower": THERE, "laptop": AWAY, "oldbox": THERE}
    playing = ["tower", "laptop"]  # oldbox failed earlier
    assert message(results, playing, then="Nothing began.", **asked) == (
        f"laptop: cannot be reached: timed out\noldbox: failed, see above\nNothing began.{said}"
    )


def test_facts_must_be_the_same_everywhere():
    facts = {"a": {"torch": "2.13", "data": 1}, "b": {"torch": "2.12", "data": 1}, "c": {}}
    assert differing(facts, ["torch", "data"]) == [
        "torch is not the same on all nodes: a 2.13, b 2.12"
    ]
