"""The tables of runs: their queue and a run that is moved in it, and what each node lends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.digests import NODES, cause, digest
from support.facts import assert_names, refuses

from hearth.base.errors import LaunchError
from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.listing import (
    in_queue,
    lending_lines,
    new_position,
    queue_table,
    removal_objection,
)
from hearth_controller.runs.observed import GONE, pick
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import status_lines

AT = "2026-11-26T22:00:00+00:00"


def waiting(
    node: str, run: str, position: float, at: str | None = None, state: str = "queued", **more
) -> dict:
    """Return a node's digest of a run in its queue."""
    turn = {"position": position, "at": at, "submitted": "2026-11-26T20:00:00+00:00"}
    why = cause(node, "queued", f"starts at {at}" if at else "waits behind evening")
    record = {"run": run, "cause": why, "job": None}
    whole = {"name": run, "turn": turn, "metrics": {}, "checkpoint": None, **more}
    return digest(node, state, record_more=record) | whole


def observed(*runs, silent: str = ""):
    """Return the runs, each waiting on both nodes; the run `evening` is under way there."""
    found = {
        node: None
        if node == silent
        else [digest(node), *(waiting(node, name, *place) for name, *place in runs)]
        for node in NODES
    }
    return observed_runs(found)


def test_the_queue_comes_after_what_trains_in_the_order_in_which_it_is_served():
    runs = observed(("late", 3.0, AT), ("second", 2.0), ("first", 1.0))
    assert [run.name for run in runs] == ["evening", "first", "second", "late"]
    assert pick(runs, under_way=True).name == "evening"  # what `stop` means without a name
    title, *rows = queue_table(runs)
    assert title.split() == ["queue", "run", "starts", "why", "nodes"]
    assert [row.split()[:2] for row in rows] == [
        ["1st", "first"],
        ["2nd", "second"],
        ["3rd", "late"],
    ]
    assert "in its turn" in rows[0]
    assert "2026-11-26" in rows[2]
    assert queue_table(observed()) == []


def test_a_run_that_waits_tells_why_and_is_nothing_to_worry_about():
    runs = observed(("night", 1.0))
    night = next(run for run in runs if run.name == "night")
    assert (night.state, night.why, night.missing) == ("queued", "waits behind evening", [])
    answer = status(runs, {node: {} for node in NODES}, {}, "2026-11-26T20:00:00+00:00")
    assert (answer["verdict"], answer["reasons"]) == ("good", [])
    entry = next(run for run in answer["runs"] if run["name"] == "night")
    assert (entry["place"], entry["starts"]) == (1, None)


def test_a_supervisor_that_died_in_the_queue_is_gone():
    digests = {node: [waiting(node, "night", 1.0, alive=False)] for node in NODES}
    (run,) = observed_runs(digests)
    assert (run.state, run.alive) == ("lost", False)
    assert GONE in run.why
    assert in_queue([run]) == []


def test_a_run_that_waits_may_be_removed_and_one_that_has_begun_on_a_node_may_not():
    (_, night) = observed(("night", 1.0))
    assert removal_objection(night, []) == ""
    assert_names(removal_objection(night, ["laptop"]), "laptop", "does not answer")
    begun = {
        "desk": [waiting("desk", "night", 1.0, state="waiting")],
        "laptop": [waiting("laptop", "night", 1.0)],
    }
    (run,) = observed_runs(begun)
    assert run.state == "waiting"
    assert_names(removal_objection(run, []), "under way")
    assert [each.name for each in in_queue([run])] == ["night"]


@given(
    positions=st.lists(st.floats(0, 1e9), min_size=1, max_size=6, unique=True),
    data=st.data(),
)
def test_a_run_that_is_moved_comes_to_its_place_and_the_others_keep_their_order(positions, data):
    runs = observed(*((f"run{n}", position) for n, position in enumerate(positions)))
    names = [run.name for run in in_queue(runs)]
    moved = data.draw(st.sampled_from(names))
    place = data.draw(st.integers(1, len(names)))
    others = [name for name in names if name != moved]
    before = dict(zip((f"run{n}" for n in range(len(positions))), positions, strict=True))
    try:
        after = before | {moved: new_position(runs, moved, str(place))}
    except LaunchError as error:  # two positions may be too near to each other
        assert_names(str(error), "no room")
        return
    served = [run.name for run in in_queue(observed(*after.items()))]
    assert served == [*others[: place - 1], moved, *others[place - 1 :]]


@pytest.mark.parametrize(
    ("name", "place", "silent", "facts"),
    [
        ("nihgt", "1", "", ["'nihgt'", "'night'?", "late"]),
        ("evening", "1", "", ["'evening'", "waits for its turn"]),
        ("night", "", "", ["-e place", "1 to 2"]),
        ("night", "3", "", ["-e place", "'3'", "1 to 2"]),
        ("night", "first", "", ["-e place", "'first'"]),
        ("night", "1", "laptop", ["laptop", "night", "does not answer"]),
    ],
)
def test_a_run_that_cannot_be_moved_says_why(name, place, silent, facts):
    runs = observed(("night", 2.0), ("late", 1.0), silent=silent)
    with refuses(LaunchError, *facts):
        new_position(runs, name, place)


def test_the_table_of_the_status_has_the_reason_below_each_run():
    runs = observed(("night", 1.0))
    lines = status_lines(status(runs, {node: {} for node in NODES}, {}, AT), 118)
    place = next(n for n, line in enumerate(lines) if line.startswith("night"))
    assert "queued" in lines[place]
    assert lines[place + 1].strip() == "waits behind evening"


AUTO = {
    "word": "auto",
    "until": None,
    "trouble": "",
    "run": "night",
    "away": "",
    "lends": True,
    "since": "21:09",
}


def test_each_node_is_shown_with_its_word_and_its_run():
    lines = lending_lines(
        {
            "tower": AUTO | {"word": "off", "until": "07:00"},
            "laptop": AUTO | {"away": "game (process 70) draws on the GPU"},
            "oldbox": AUTO,
            "nas": AUTO | {"run": "", "since": None},
            "attic": None,
        }
    )
    assert lines == [
        "node    lends  until  run",
        "tower   off    07:00  night  leaves after its step",
        "laptop  auto       –  night  away since 21:09: game (process 70) draws on the GPU",
        "oldbox  auto       –  night  has the machine since 21:09",
        "nas     auto       –  –      no run is under way",
        "attic   –          –  –      not answered",
    ]


def test_a_node_that_was_switched_on_a_moment_ago_returns():
    away = AUTO | {"word": "on", "away": "its hours are 21:03-07:00; lends again at 21:03"}
    (_, line) = lending_lines({"tower": away})
    assert "away since 21:09; it returns" in line
    assert "21:03" not in line


def test_a_run_without_lending_stays_whatever_is_said():
    (_, line) = lending_lines({"tower": AUTO | {"word": "off", "lends": False}})
    assert "stays to its end" in line
    assert "hearth stop" in line


def test_a_broken_word_is_shown_with_what_mends_it():
    trouble = "/ws/lend.json cannot be read: `hearth-lend auto` writes it anew"
    (_, line) = lending_lines({"tower": AUTO | {"word": "off", "run": "", "trouble": trouble}})
    assert trouble in line


def test_where_no_node_has_facts_there_is_no_table():
    assert lending_lines({"tower": {}}) == []
