"""From where a run goes on, and when it should not."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth_controller.launch.prediction import NodeFacts, choose_nodes
from hearth_controller.launch.resume import add_resume_point, going_on, left_behind

NODES = ("desk", "laptop", "oldbox")


@pytest.mark.parametrize(
    ("reached", "recorded", "facts"),
    [
        ({"desk": 1000, "laptop": None}, None, ["r", "step 1000", "-e nodes=laptop,desk"]),
        ({"desk": 1000, "laptop": 500}, None, ["step 1000", "on desk", "step 500"]),
        ({"laptop": None}, 1000, ["r", "step 1000", "laptop"]),  # it would begin anew as `r`
    ],
)
def test_the_node_with_the_newest_checkpoint_is_not_left_out(reached, recorded, facts):
    (finding,) = left_behind("r", ["laptop"], reached, recorded)
    assert_names(finding, *facts)


def test_a_run_that_has_kept_none_begins_anew():
    assert left_behind("r", NODES, dict.fromkeys(NODES), None) == []
    assert going_on(NODES, dict.fromkeys(NODES), None) == ""


def test_a_newer_checkpoint_that_is_out_of_reach_is_named():
    assert left_behind("r", ["laptop"], {"laptop": 500}, 1000) == []
    newest, unrecorded, behind = (
        going_on(["laptop"], {"laptop": 500}, step) for step in (500, None, 1000)
    )
    assert newest == unrecorded == "goes on from step 500"
    assert_names(behind, "from step 500", "checkpoint of step 1000")


def test_what_it_goes_on_from_is_said_below_what_comes_of_it():
    run, reached = {"name": "r", "recorded": 1000}, {"desk": 1000, "laptop": None}
    both = {"findings": [], "names": ["desk", "laptop"], "say": "  x"}
    told = add_resume_point(both, run, reached)
    assert told["say"] == "  x\n  goes on from step 1000"
    assert not told["findings"]
    alone = add_resume_point({"findings": [], "names": ["laptop"]}, run, reached)
    assert len(alone["findings"]) == 1


def test_only_a_run_that_resumes_looks_for_checkpoints():
    nodes = {"desk": NodeFacts({"checkpoint": 1000}), "laptop": NodeFacts({"checkpoint": None})}
    run = {"name": "r", "recorded": 1000, "nodes": ["laptop"], "parallel": "ddp"}
    assert len(choose_nodes(run | {"resumes": True}, nodes)["findings"]) == 1
    assert not choose_nodes(run | {"resumes": False}, nodes)["findings"]
