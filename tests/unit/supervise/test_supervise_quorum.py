"""The hub's conclusions from its members' messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.messages import Ended
from hearth.supervise.quorum import SETTLE, Council

NODES = ("desk", "laptop", "shelf")
ECHO = "RuntimeError: Connection closed by peer [10.0.0.2]:1"
ENDED = {
    "echo": Ended(1, 0, ECHO),
    "real": Ended(1, 0, "torch.OutOfMemoryError: CUDA out of memory"),
    "killed": Ended(1, 0, "killed by signal 9", killed=True),
    "well": Ended(0),
}


def called(**terms: object) -> Council:
    """Return a council that waits for all, and to which every loss is the run's end."""
    given = {"patience": 60, "silence_timeout": 15, "now": 0, "least": len(NODES)} | terms
    return Council(NODES, **given)


def started(team: tuple[str, ...] = NODES, **terms: object) -> Council:
    """Return a council whose members all joined at second 0."""
    council = called(**terms)
    for node in team:
        council.join(node, 0)
    council.start(team)
    return council


def end_well(council: Council) -> LaunchOutcome | None:
    """Let every member of the team end well, and return what is decided after the last."""
    for node in council.team:
        assert council.decide(1) is None
        council.ended(node, Ended(0), 1)
    return council.decide(1)


def cause(verdict: LaunchOutcome | None):
    assert verdict is not None
    assert verdict.cause is not None
    return verdict.cause


def happen(council: Council, kind: str, node: str, at: float) -> None:
    """Let this happen to a node."""
    match kind:
        case "joins":
            council.join(node, at)
        case "gone":
            council.gone(node)
        case "heard":
            council.heard(node, at)
        case "stop" | "now":
            council.stop(node, at_once=kind == "now")
        case "pause":
            council.pause()
        case "slept":
            council.slept(40)
        case _:
            council.ended(node, ENDED[kind], at)


def test_a_member_that_waits_for_its_turn_is_waited_for_until_long_after_its_last_word():
    council = called()
    council.join(NODES[0], 0)
    council.in_queue(500)
    assert council.decide(560) is None
    assert cause(council.decide(561)).kind == "not_ready"


def event(kinds: str, *nodes: str) -> st.SearchStrategy[tuple[str, str, float]]:
    """Return a strategy of what happens to one of these nodes, and after how many seconds."""
    return st.tuples(st.sampled_from(kinds.split()), st.sampled_from(nodes), st.floats(0, 5))


@given(st.permutations(NODES))
def test_who_is_missing_is_told_in_rank_order(order):
    council = called()
    for count, node in enumerate(order):
        assert council.missing == tuple(n for n in NODES if n not in order[:count])
        assert council.join(node, 1) is council.join(node, 2) is None  # again: its own place
    assert council.decide(61) is None


@pytest.mark.parametrize("lost", [None, Cause("desk", None, "node_lost", "desk was silent")])
def test_waiting_ends_with_the_names_of_the_missing_and_the_loss_before_it(lost):
    council = called(lost=lost)
    council.join("laptop", 1)
    assert council.decide(60) is None
    told = cause(council.decide(60.1))
    assert (told.node, told.kind) == ("desk", "node_lost" if lost else "not_ready")
    assert told.message.startswith(lost.message if lost else "desk, shelf")
    assert_names(told.message, "desk, shelf", "60 s")


def test_a_member_of_the_team_that_joins_again_had_lost_its_connection():
    council = started(again=True)
    assert "launch" in council.join("laptop", 1)
    assert council.decide(1).state == "again"
    assert cause(council.decide(1)).node == "laptop"
    assert "ended" in council.join("laptop", 2)


@given(
    st.lists(st.sampled_from(NODES), unique=True),
    st.integers(1, 3),
    st.sampled_from([SETTLE - 1, SETTLE, 59]),
)
def test_all_may_begin_and_after_a_while_enough_of_them_with_the_meeting_point(there, least, now):
    council = called(least=least)
    for node in there:
        council.join(node, 0)
    enough = now >= SETTLE and len(there) >= least and NODES[0] in there
    begin = enough or len(there) == len(NODES)
    assert council.ready(now) == (tuple(node for node in NODES if node in there) if begin else ())


@pytest.mark.parametrize(
    ("events", "state", "kind", "told"),
    [
        ("", "again", "node_back", "is back"),
        ("pause gone", "again", "node_back", "left again"),
        ("pause stop gone", "stopped", "stopped", "asked"),
        ("gone", "finished", None, ""),
    ],
)
def test_who_comes_back_is_taken_in_if_it_stays_or_the_others_paused_for_it(
    events, state, kind, told
):
    council = started(("desk", "shelf"), least=2, again=True)
    assert council.back == ()
    assert council.join("laptop", 1) is None
    assert council.back == ("laptop",)
    for each in events.split():
        happen(council, each, "laptop", 1)
    verdict = end_well(council)
    assert (verdict.state, verdict.cause and verdict.cause.kind) == (state, kind)
    if kind:
        assert cause(verdict).node == "laptop"
        assert_names(cause(verdict).message, "laptop", told)


def test_a_node_that_ended_well_may_leave():
    council = started()
    council.ended("laptop", Ended(0), 1)
    council.gone("laptop")
    council.heard("desk", 100)
    council.heard("shelf", 100)
    assert council.decide(100) is None


def test_a_stop_waits_for_all_and_names_who_was_asked():
    council = started()
    council.stop("laptop", at_once=False)
    council.stop("desk", at_once=False)
    assert cause(end_well(council)).node == "laptop"


def test_a_silent_node_is_lost():
    council = started()
    council.heard("laptop", 1)
    for node in ("desk", "shelf"):
        council.heard(node, 16)
    assert council.decide(16) is None
    verdict = cause(council.decide(16.1))
    assert (verdict.node, verdict.kind) == ("laptop", "node_lost")
    assert_names(verdict.message, "laptop", "15 s")


@given(
    st.permutations(NODES),
    st.lists(st.tuples(st.sampled_from(["echo", "real"]), st.floats(0, 3)), min_size=1, max_size=3),
)
def test_an_echo_is_never_preferred_to_a_real_failure(order, ends):
    council = started()
    at = 0.0
    for node, (kind, after) in zip(order, ends, strict=False):
        at += after
        happen(council, kind, node, at)
        council.decide(at)
    for node in NODES:
        council.heard(node, 30)
    told = cause(council.decide(30))
    kinds = [kind for kind, _ in ends]
    first = kinds.index("real") if "real" in kinds else 0
    assert (told.node, told.message) == (order[first], ENDED[kinds[first]].message)


def test_a_peer_that_vanishes_explains_the_echo():
    council = started()
    council.ended("desk", Ended(1, 0, ECHO), 1)
    council.heard("shelf", 14)
    assert council.decide(14) is None
    assert cause(council.decide(15.5)).node == "laptop"


@given(st.lists(event("heard gone echo real well stop now", *NODES)))
def test_a_verdict_stays_and_every_failure_gets_one_in_time(steps):
    council = started()
    at, failed, verdict = 0.0, None, None
    for kind, node, after in steps:
        at += after
        happen(council, kind, node, at)
        if kind in ("echo", "real") and failed is None:
            failed = at
        decided = council.decide(at)
        assert verdict is None or decided == verdict
        verdict = decided
        assert failed is None or verdict or at <= failed + 17


@given(
    st.lists(event("joins gone", *NODES)),
    st.lists(event("well killed gone stop", *NODES[:2]) | event("joins gone", "shelf")),
)
def test_an_elastic_launch_never_ends_as_if_it_had_not_been_asked_to_pause_or_to_stop(
    visits, steps
):
    council = called(again=True, least=2)
    last = [("joins", "desk", 0), ("joins", "laptop", 0), ("gone", "shelf", 0)]
    for kind, node, _ in [*visits, *last]:
        if kind == "joins" or node not in council.missing:
            happen(council, kind, node, 0)
    council.start(council.ready(SETTLE))
    assert council.team == NODES[:2]
    at, well, asked = 0.0, set(), False
    shelf_is_there = False
    for kind, node, after in steps:
        at += after
        for each in council.team:
            council.heard(each, at)
        if (kind == "killed" and node in well) or (kind == "gone" and node in council.missing):
            continue
        happen(council, kind, node, at)
        if node == "shelf":
            shelf_is_there = kind == "joins"
            if shelf_is_there and not council.paused:
                council.pause()
        well |= {node} if kind == "well" else set()
        asked = asked or kind == "stop"
        assert council.back == (("shelf",) if shelf_is_there else ())
        if verdict := council.decide(at):
            done = well == set(council.team)
            match verdict.state:
                case "finished":
                    assert done and not asked and not council.paused
                case "again":
                    assert not asked
                    assert (cause(verdict).kind == "node_back") == (council.paused and done)
                case "stopped":
                    assert asked and done
            break


@pytest.mark.parametrize(
    ("again", "events", "state", "node"),
    [
        (True, "killed laptop", "again", "laptop"),
        (True, "real laptop", "failed", "laptop"),
        (False, "killed laptop", "failed", "laptop"),
        (True, "gone laptop", "again", "laptop"),
        (True, "stop desk, gone laptop", "failed", "laptop"),
        (False, "stop desk, real shelf", "failed", "shelf"),
        (False, "now laptop", "stopped", "laptop"),
        (False, "slept desk", "failed", "desk"),  # the hub itself
    ],
)
def test_a_launch_ends_at_once_by_what_happens_to_one_node(again, events, state, node):
    council = started(again=again)
    for each in events.split(", "):
        happen(council, *each.split(), at=1)
    verdict = council.decide(1)
    assert (verdict.state, cause(verdict).node) == (state, node)


def test_a_stop_before_the_start_does_not_wait():
    waiting = called()
    waiting.stop("desk", at_once=False)
    assert waiting.decide(1).state == "stopped"
