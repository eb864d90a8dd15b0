"""Digests of a node that holds or sends anything: other runs stay, and the damaged one is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.digests import LOST, NODES, digest, metrics, record, team
from support.facts import assert_names

from hearth_controller.runs.digests import damage, digests_of, observed_runs, readable
from hearth_controller.runs.listing import cells, listing, queue_table, removal
from hearth_controller.runs.pages import nodes_with_curves
from hearth_controller.runs.prometheus import exposition
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import status_lines

OTHER = digest("desk", "finished", False) | {"name": "morning"}
TURN = {"position": 1.0, "at": None, "submitted": ""}
QUEUE = {"job": "7", "state": "PENDING", "reason": "Priority"}
FULL = digest("desk", record_more={"cause": LOST, "missing": ["laptop"], "away": ""}) | {
    "turn": TURN,
    "queue": QUEUE,
    "metrics": metrics(teams=[team(1, 5, *NODES)]),
}
WRONG = ([[]], {"a": []}, 10**400, True, "\ud800", -1)


def shown(runs):
    """Return all that is shown of runs."""
    found = status(runs, dict.fromkeys(NODES), {}, "2026-11-29T07:00:00+00:00")
    json.dumps(found)
    tables = (listing(runs, 80), queue_table(runs), status_lines(found, 118))
    return "\n".join(
        [*(line for table in tables for line in table), *exposition(found)]
        + [str((cells(run), removal(run), run.settings)) for run in runs]
    )


def broken():
    """Yield digests of `evening` with a field of another type."""
    for value in WRONG:
        for name in FULL.keys() - {"name"}:
            yield FULL | {name: value}
        for part in ("record", "turn", "queue", "checkpoint"):
            for name in FULL[part]:
                yield FULL | {part: FULL[part] | {name: value}}
        for name in FULL["record"]["cause"]:
            cause = LOST | {name: value}
            yield FULL | {"record": record("desk", cause=cause)}
            launch = {"generation": 0, "ended": "", "cause": cause}
            yield FULL | {"record": record("desk", launches=[launch])}
        for name in FULL["metrics"]:
            yield FULL | {"metrics": FULL["metrics"] | {name: value}}
        yield FULL | {"files": {"x": value}}
    yield {"name": "evening"}
    yield {"name": "evening", "damaged": ["it cannot be summarised"]}


def test_a_field_of_another_type_hides_no_other_run():
    for one in broken():
        nodes = {"desk": [one, OTHER], "laptop": [digest("laptop")]}
        runs = observed_runs(nodes)
        assert {run.name for run in runs} == {"evening", "morning"}
        assert "morning" in shown(runs)
        assert bool(damage(nodes)) or one in [*readable([one])]
        assert nodes_with_curves("morning", {"desk": readable(nodes["desk"])}) == ["desk"]


@pytest.mark.parametrize("one", [None, 5, "x", [], {}, {"name": ["x"]}, {"name": "../up"}])
def test_an_answer_that_is_no_digest_is_named(one):
    nodes = {"desk": [one, OTHER], "laptop": None}
    assert [run.name for run in observed_runs(nodes)] == ["morning"]
    (sentence,) = damage(nodes)
    assert_names(sentence, "desk")


def test_what_a_node_says_of_damaged_files_is_told_with_the_run():
    one = FULL | {"damaged": ["/w/results/evening/run.yml cannot be read"], "run_file": ""}
    assert {run.name for run in observed_runs({"desk": [one, OTHER]})} == {"evening", "morning"}
    (sentence,) = damage({"desk": [one, OTHER]})
    assert_names(sentence, "desk", "evening", "run.yml")
    found = status([], {}, {}, "2026-11-29T07:00:00+00:00", damaged=[sentence])
    assert found["verdict"] == "degraded"
    assert sentence in found["reasons"]


@pytest.mark.parametrize("runs", [None, "x", {}, 5])
def test_an_answer_of_another_kind_is_none(runs):
    assert digests_of(["desk"], {"desk": {"runs_look": {"runs": runs}}}) == {"desk": None}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*FULL]), inner),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from([*FULL]), JSON, max_size=3))
def test_whatever_is_changed_everything_else_is_shown(changes):
    nodes = {"desk": [FULL | changes, OTHER], "laptop": [digest("laptop")]}
    assert "morning" in shown(observed_runs(nodes))
    damage(nodes)
