"""From where a run goes on, and when it should not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.facts import assert_names, refuses
from support.launches import launch_request

from hearth.base.errors import ConfigError
from hearth_controller.launch.answers import Preparation
from hearth_controller.launch.prediction import NodeFacts, choose_nodes, going_on, left_behind

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


def test_only_a_run_that_resumes_looks_for_checkpoints(tmp_path):
    nodes = {
        name: NodeFacts(Preparation(checkpoint=step), device="RTX")
        for name, step in (("desk", 1000), ("laptop", None))
    }
    request = launch_request(
        tmp_path, ["desk", "laptop"], {"model": "smollm2-135m", "nodes": "laptop"}
    )
    assert choose_nodes(request, nodes).names == ["laptop"]
    settings = request.settings.model_copy(update={"resume": "r"})
    resumed = replace(request, run=replace(request.training, settings=settings))
    with refuses(ConfigError, "step 1000", "on desk"):
        choose_nodes(resumed, nodes)
    both = replace(resumed, options=replace(resumed.options, nodes=("all",)), recorded=1000)
    assert choose_nodes(both, nodes).say.splitlines()[-1] == "  goes on from step 1000"
