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
REAL = "torch.OutOfMemoryError: CUDA out of memory"


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


def end_well(council: Council, now: float = 1) -> LaunchOutcome | None:
    """Let every member of the team end well, and return what is decided after the last."""
    for node in council.team:
        assert council.decide(now) is None
        council.ended(node, Ended(0), now)
    return council.decide(now)


def cause(verdict: LaunchOutcome | None):
    assert verdict is not None
    assert verdict.cause is not None
    return verdict.cause


@given(st.permutations(NODES))
def test_who_is_missing_is_told_in_rank_order(order):
    council = called()
    for count, node in enumerate(order):
        assert council.missing == tuple(n for n in NODES if n not in order[:count])
        assert council.join(node, 1) is council.join(node, 2) is None  # again: its own place
    assert council.decide(61) is None


def test_waiting_ends_with_the_names_of_the_missing():
    council = called()
    council.join("laptop", 1)
    assert council.decide(60) is None
    assert_names(cause(council.decide(60.1)).message, "desk, shelf", "60 s")


def test_a_member_of_the_team_that_joins_again_had_lost_its_connection():
    council = started(again=True)
    assert "launch" in council.join("laptop", 1)
    assert council.decide(1).state == "again"
    assert cause(council.decide(1)).node == "laptop"
    assert "ended" in council.join("laptop", 2)


def test_a_first_launch_wants_everybody():
    council = called()
    council.join("desk", 0)
    council.join("shelf", 0)
    assert council.ready(59) == ()
    council.join("laptop", 59)
    assert council.ready(59) == NODES


def test_after_a_loss_enough_nodes_may_begin_once_the_others_had_their_time():
    lost = Cause("laptop", None, "node_lost", "laptop is gone")
    council = called(least=2, lost=lost, again=True, patience=3600)
    council.join("shelf", 0)
    assert council.ready(SETTLE + 1) == ()
    council.join("desk", 1)
    assert council.ready(SETTLE - 1) == ()
    assert council.ready(SETTLE) == ("desk", "shelf")


@given(st.sets(st.sampled_from(NODES)), st.integers(1, 3), st.floats(0, 100))
def test_nothing_begins_without_the_meeting_point_or_with_too_few(there, least, now):
    council = called(least=least)
    for node in there:
        council.join(node, 0)
    team = council.ready(now)
    assert set(team) in ({*there}, set())
    assert not team or (NODES[0] in team and len(team) >= least)
    assert team or len(there) < 3


def test_who_comes_back_is_taken_in_after_a_pause():
    council = started(("desk", "shelf"), least=2, again=True)
    assert council.back == ()
    assert council.join("laptop", 1) is None
    assert council.back == ("laptop",)
    verdict = end_well(council)
    assert (verdict.state, cause(verdict).kind) == ("again", "node_back")


@pytest.mark.parametrize(
    ("pauses", "stops", "state", "kind"),
    [
        (True, False, "again", "node_back"),
        (True, True, "stopped", "stopped"),
        (False, False, "finished", None),
    ],
)
def test_who_comes_back_and_leaves_again_ends_no_run_but_by_a_stop(pauses, stops, state, kind):
    council = started(("desk", "shelf"), least=2, again=True)
    council.join("laptop", 1)
    if pauses:
        council.pause()
    if stops:
        council.stop("laptop", at_once=False)
    council.gone("laptop")
    verdict = end_well(council)
    assert (verdict.state, verdict.cause and verdict.cause.kind) == (state, kind)
    if kind:
        assert cause(verdict).node == "laptop"
        assert_names(cause(verdict).message, "laptop", "left" if kind == "node_back" else "asked")


def test_who_left_before_the_start_is_not_back_until_it_joins_again():
    council = called(least=1, again=True)
    for node in ("desk", "laptop"):
        council.join(node, 0)
    council.gone("laptop")
    council.start(("desk",))
    assert council.back == ()
    council.join("laptop", 1)
    assert council.back == ("laptop",)
    council.gone("laptop")
    council.ended("desk", Ended(0), 1)
    assert council.decide(1) == LaunchOutcome("finished")


def test_who_waits_in_vain_tells_of_the_loss_and_of_the_waiting():
    lost = Cause("laptop", None, "node_lost", "laptop was silent for 15 s")
    council = called(patience=3600, lost=lost)
    council.join("desk", 0)
    council.join("shelf", 0)
    told = cause(council.decide(3601))
    assert told.node == "laptop"
    assert told.message.startswith(lost.message)
    assert_names(told.message.removeprefix(lost.message), "laptop", "3600 s")


def test_all_that_end_well_have_finished():
    council = started()
    end_well(council)
    council.gone("shelf")
    assert council.decide(100) == LaunchOutcome("finished")


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
    for second in range(0, 30, 2):
        council.heard("desk", second)
        council.heard("shelf", second)
        if verdict := council.decide(second):
            break
    assert second == 16
    assert (cause(verdict).node, cause(verdict).kind) == ("laptop", "node_lost")


failures = st.permutations(NODES).flatmap(
    lambda order: st.lists(
        st.tuples(st.sampled_from([ECHO, REAL]), st.floats(0, 3)), min_size=1, max_size=3
    ).map(lambda ends: [(node, *end) for node, end in zip(order, ends, strict=False)])
)


@given(failures)
def test_an_echo_is_never_preferred_to_a_real_failure(ends):
    council = started()
    at = 0.0
    for node, message, after in ends:
        at += after
        council.ended(node, Ended(1, NODES.index(node), message), at)
        council.decide(at)
    for node in NODES:
        council.heard(node, 30)
    verdict = cause(council.decide(30))
    real = [node for node, message, _ in ends if message == REAL]
    assert verdict.node == (real[0] if real else ends[0][0])
    assert verdict.message == (REAL if real else ECHO)


def test_a_peer_that_vanishes_explains_the_echo():
    council = started()
    council.ended("desk", Ended(1, 0, ECHO), 1)
    council.heard("shelf", 14)
    assert council.decide(14) is None
    assert cause(council.decide(15.5)).node == "laptop"


events = st.lists(
    st.tuples(
        st.sampled_from(["heard", "gone", "echo", "real", "well", "stop", "now"]),
        st.sampled_from(NODES),
        st.floats(0, 5),
    )
)


@given(events)
def test_a_verdict_stays_and_every_failure_gets_one_in_time(steps):
    council = started()
    at, failed, verdict = 0.0, None, None
    for kind, node, after in steps:
        at += after
        match kind:
            case "heard":
                council.heard(node, at)
            case "gone":
                council.gone(node)
            case "stop" | "now":
                council.stop(node, kind == "now")
            case _:
                status, message = {"echo": (1, ECHO), "real": (1, REAL), "well": (0, "")}[kind]
                council.ended(node, Ended(status, 0, message), at)
                failed = at if status and failed is None else failed
        decided = council.decide(at)
        assert verdict is None or decided == verdict
        verdict = decided
        assert failed is None or verdict or at <= failed + 17


of_two = st.lists(
    st.tuples(
        st.sampled_from(["well", "killed", "gone", "stop", "join", "leave"]),
        st.sampled_from(NODES[:2]),
        st.floats(0, 5),
    )
)


def come_and_go(council: Council, visits: list[tuple[bool, str]]) -> None:
    """Let each node of `visits` join, or leave if it is there."""
    for comes, node in visits:
        if comes:
            council.join(node, 0)
        elif node not in council.missing:
            council.gone(node)


before_the_start = st.lists(st.tuples(st.booleans(), st.sampled_from(NODES)))


@given(before_the_start, of_two)
def test_an_elastic_launch_never_ends_as_if_it_had_not_been_asked_to_pause_or_to_stop(
    visits, steps
):
    council = called(again=True, least=2)
    come_and_go(council, [*visits, *((node != "shelf", node) for node in NODES)])
    council.start(council.ready(SETTLE))
    assert council.team == NODES[:2]
    shelf_is_there = False
    at, well, asked = 0.0, set(), False
    for kind, node, after in steps:
        at += after
        for each in NODES[:2]:
            council.heard(each, at)
        match kind:
            case "join":
                council.join("shelf", at)
                shelf_is_there = True
                if council.back and not council.paused:
                    council.pause()
            case "leave" if shelf_is_there:
                council.gone("shelf")
                shelf_is_there = False
            case "gone":
                council.gone(node)
            case "stop":
                council.stop(node, at_once=False)
                asked = True
            case "well":
                council.ended(node, Ended(0), at)
                well.add(node)
            case "killed" if node not in well:
                council.ended(node, Ended(-9, 0, "", killed=True), at)
        assert council.back == (("shelf",) if shelf_is_there else ())
        if verdict := council.decide(at):
            match verdict.state:
                case "finished":
                    assert well == set(NODES[:2])
                    assert not (asked or council.paused)
                case "again":
                    assert not asked
                    taken_in = cause(verdict).kind == "node_back"
                    assert taken_in == (council.paused and well == set(NODES[:2]))
                case "stopped":
                    assert asked
                    assert well == set(NODES[:2])
            break


KILLED, RAISED = Ended(1, 1, "killed by signal 9", killed=True), Ended(1, 1, REAL)


@pytest.mark.parametrize(
    ("again", "events", "state", "node"),
    [
        (True, [("ended", "laptop", KILLED, 1)], "again", "laptop"),
        (True, [("ended", "laptop", RAISED, 1)], "failed", "laptop"),
        (False, [("ended", "laptop", KILLED, 1)], "failed", "laptop"),
        (True, [("gone", "laptop")], "again", "laptop"),
        (True, [("stop", "desk", False), ("gone", "laptop")], "failed", "laptop"),
        (False, [("stop", "desk", False), ("ended", "shelf", RAISED, 1)], "failed", "shelf"),
        (False, [("stop", "laptop", True)], "stopped", "laptop"),
        (False, [("slept", 40)], "failed", "desk"),  # the hub itself
    ],
)
def test_a_launch_ends_at_once_by_what_happens_to_one_node(again, events, state, node):
    council = started(again=again)
    for event, *about in events:
        getattr(council, event)(*about)
    verdict = council.decide(1)
    assert (verdict.state, cause(verdict).node) == (state, node)


def test_a_stop_before_the_start_does_not_wait():
    waiting = called()
    waiting.stop("desk", at_once=False)
    assert waiting.decide(1).state == "stopped"
