"""From where a run goes on, and when it should not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.plugins import load

from hearth_controller.launch.resume import going_on, left_behind

worth = load("action", "hearth_worth")
NODES = ("desk", "laptop", "oldbox")


def test_the_node_with_the_newest_checkpoint_is_not_left_out():
    (finding,) = left_behind("r", ["laptop"], {"desk": 1000, "laptop": None}, None)
    assert "the newest checkpoint of r, of step 1000, is on desk" in finding
    assert "(laptop) have none" in finding
    assert "-e nodes=laptop,desk" in finding
    (finding,) = left_behind("r", ["laptop"], {"desk": 1000, "laptop": 500}, None)
    assert "have that of step 500" in finding


def test_a_run_that_has_kept_some_does_not_begin_anew_under_its_name():
    (finding,) = left_behind("r", ["laptop"], {"laptop": None}, 1000)
    assert "r has kept checkpoints up to step 1000, and none of laptop has one" in finding


def test_a_run_that_has_kept_none_begins_anew():
    assert left_behind("r", NODES, dict.fromkeys(NODES), None) == []
    assert going_on(NODES, dict.fromkeys(NODES), None) == ""


def test_a_newer_checkpoint_that_is_out_of_reach_is_named():
    assert left_behind("r", ["laptop"], {"laptop": 500}, 1000) == []
    assert going_on(["laptop"], {"laptop": 500}, 500) == "goes on from step 500"
    assert going_on(["laptop"], {"laptop": 500}, 1000) == (
        "goes on from step 500; the checkpoint of step 1000 is on none of these nodes"
    )


steps = st.one_of(st.none(), st.integers(1, 9))


@given(
    st.fixed_dictionaries(dict.fromkeys(NODES, steps)),
    steps,
    st.sets(st.sampled_from(NODES), min_size=1),
)
def test_it_goes_on_from_the_newest_of_all_that_answered_or_not_at_all(reached, recorded, chosen):
    chosen = sorted(chosen)
    newest = max((step for step in reached.values() if step), default=None)
    here = max((reached[node] for node in chosen if reached[node]), default=None)
    refused = left_behind("r", chosen, reached, recorded)
    assert bool(refused) is (here != newest or (here is None and recorded is not None))
    if not refused:
        assert (f"step {newest}" in going_on(chosen, reached, recorded)) is (newest is not None)


def test_what_it_goes_on_from_is_said_below_what_comes_of_it():
    known = {
        name: {"launch_prepared": {"facts": {"checkpoint": step}}}
        for name, step in (("desk", 1000), ("laptop", None))
    }
    asked = {"name": "r", "resumes": True, "recorded": 1000}
    given_ = {"run": asked, "nodes": [{"name": "desk"}, {"name": "laptop"}]}
    both = worth.going_on_over(
        {"findings": [], "names": ["desk", "laptop"], "say": "  x"}, given_, known
    )
    assert both == {"findings": [], "say": "  x\n  goes on from step 1000"}
    alone = worth.going_on_over({"findings": [], "names": ["laptop"]}, given_, known)
    assert len(alone["findings"]) == 1
    fresh = given_ | {"run": asked | {"resumes": False}}
    assert worth.going_on_over({"findings": [], "names": ["laptop"]}, fresh, {}) == {}
