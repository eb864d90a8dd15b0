"""The moves of a node where the owner wants machines, in one situation each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.facts import assert_names
from support.situations import NODES, TEAM, Mind, answer, moves, report, situation, with_facts

from hearth.ranks.control_protocol import Interrupt, Leave, Pause, RankEnded
from hearth.supervisor.decisions.actions import (
    Depart,
    ProposeTeam,
    RestartRanks,
    RestRanks,
    SayWaiting,
    SendVerdict,
    TellRanks,
)
from hearth.supervisor.decisions.decide import BRIEF
from hearth.supervisor.decisions.events import Event, OwnerSays, RankSaid, Tick
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.own_ranks import (
    EVALUATION_PATIENCE,
    FREE_WITHIN,
    HANDOVER,
    HEARD_OF,
    STEP_PATIENCE,
)
from hearth.supervisor.decisions.state import Disconnection, State
from hearth.supervisor.decisions.transition import transition
from hearth.supervisor.decisions.voting import Attempt, Config, Refusal, Votes
from hearth.supervisor.messages import Propose, RanksFailure, Stop

GAME = "a game computes on the GPU"


def lent(states: str, *wanted: str, me: str = "desk", **facts: object) -> State:
    """Return the view of `me` on a team in these states, with nodes wanted by their owner."""
    reports = {
        node: report(node, state, leaving=GAME, returns=True)
        if node in wanted
        else report(node, state)
        for node, state in zip(NODES, states.split(), strict=True)
    }
    reports = {node: replace(each, parting=wanted) for node, each in reports.items()}
    return situation(reports.pop(me), *reports.values(), **facts)


def after(seen: State, seconds: float) -> State:
    return replace(seen, now=seen.now + seconds)


def only(found: list) -> object:
    (one,) = found
    return one


# On the way out


@pytest.mark.parametrize("wanted", [*NODES, "desk laptop", " ".join(NODES)])
def test_the_group_pauses_for_a_node_that_the_owner_wants(wanted):
    seen = lent("training training training", *wanted.split())
    assert moves(seen) == [TellRanks(Pause(5))]


def test_ranks_end_without_a_checkpoint_as_soon_as_they_wait_if_others_have_the_state():
    for others in ("training training", "paused training", "paused paused"):
        seen = lent(f"{others} paused", "shelf", me="shelf")
        assert moves(seen) == [TellRanks(Leave(save=False))]


def test_a_node_keeps_the_state_only_for_those_of_which_it_has_heard_that_they_leave():
    seen = lent("training training paused", "shelf", me="shelf")
    for node in NODES[:2]:
        seen = with_facts(seen, node, parting=())
    mind = Mind()
    assert moves(seen, mind) == []
    assert moves(after(seen, HEARD_OF + 0.1), mind) == [TellRanks(Leave(save=True))]
    heard = with_facts(seen, "laptop", parting=("shelf",))
    assert moves(heard) == [TellRanks(Leave(save=False))]


@pytest.mark.parametrize("others", ["loading ready", "starting starting", "away away"])
def test_ranks_that_alone_have_the_state_end_with_a_checkpoint(others):
    seen = lent(f"{others} paused", "shelf", me="shelf")
    for node in NODES[:2]:
        seen = with_facts(seen, node, trained=0)
    assert TellRanks(Leave(save=True)) in moves(seen)


def test_all_that_are_wanted_at_once_write_a_checkpoint_and_form_no_group():
    for me in NODES:
        seen, mind = lent("paused paused paused", *NODES, me=me), Mind()
        assert moves(seen, mind)[0] == TellRanks(Leave(save=True))
        assert not any(isinstance(each, ProposeTeam) for each in moves(after(seen, 1), mind))


def test_the_state_is_given_to_nodes_that_have_loaded_before_it_goes():
    seen = with_facts(lent("paused loaded paused", "desk", "shelf"), "laptop", trained=0)
    mind = Mind()
    proposed = only(moves(seen, mind))
    assert isinstance(proposed, ProposeTeam)
    assert proposed.attempt.config.nodes == NODES
    late = moves(after(seen, HANDOVER + 1), mind)
    assert TellRanks(Leave(save=True)) in late


@pytest.mark.parametrize("state", ["starting", "ready", "loading", "loaded"])
def test_ranks_that_have_not_trained_are_ended_at_once(state):
    seen = with_facts(lent(f"{state} training training", "desk"), "desk", trained=0)
    assert moves(seen) == [RestRanks(GAME)]


def test_ranks_that_the_owner_wants_are_not_started_again():
    killed = RanksFailure(0, "rank 0 was killed by signal 9", curable=True)
    seen = with_facts(lent("failed training training", "desk"), "desk", failure=killed)
    assert moves(seen) == [RestRanks(GAME)]


def test_ranks_with_nothing_to_save_that_do_not_end_are_ended():
    seen, mind = lent("paused training training", "desk"), Mind()
    assert moves(seen, mind) == [TellRanks(Leave(save=False))]
    assert moves(after(seen, FREE_WITHIN - 0.1), mind) == []
    assert moves(after(seen, FREE_WITHIN + 0.1), mind) == [RestRanks(GAME)]


def test_ranks_that_write_a_checkpoint_are_let_alone():
    seen, mind = lent("paused away away", *NODES), Mind()
    moves(seen, mind)
    assert not any(isinstance(each, RestRanks) for each in moves(after(seen, 60), mind))


@pytest.mark.parametrize(
    ("evaluates", "patience"), [(False, STEP_PATIENCE), (True, EVALUATION_PATIENCE)]
)
def test_a_step_and_an_evaluation_are_broken_off_only_when_they_take_long(evaluates, patience):
    seen = lent("training training training", "laptop", me="laptop", evaluates=evaluates)
    mind = Mind()
    assert moves(seen, mind) == []
    assert moves(after(seen, patience - 0.1), mind) == []
    told = only(moves(after(seen, patience + 0.1), mind))
    assert isinstance(told.order, Interrupt)
    assert_names(told.order.why, "laptop", GAME)
    if not evaluates:
        assert moves(after(seen, STEP_PATIENCE + HANDOVER + 1), mind) == [RestRanks(GAME)]


def test_the_others_break_off_a_group_of_which_a_member_is_away():
    told = only(moves(lent("training away training", "laptop")))
    assert isinstance(told.order, Interrupt)
    assert_names(told.order.why, "laptop is away", GAME)


def test_a_node_whose_ranks_end_is_in_no_group_but_hands_in_its_vote():
    seen, mind = lent("paused paused paused", "shelf", me="shelf"), Mind()
    moves(seen, mind)
    member = Propose(Attempt(Config(6, NODES), (), NODES, TEAM))
    assert isinstance(answer(seen, mind, member, "desk"), Refusal)
    voter = Propose(Attempt(Config(6, NODES[:2]), ("shelf",), NODES, TEAM))
    assert isinstance(answer(seen, mind, voter, "desk"), Votes)


def test_a_machine_that_shuts_down_while_the_owner_has_it_departs():
    seen = with_facts(
        lent("away training training", "desk"), "desk", leaving="it shuts down", returns=False
    )
    assert moves(seen) == [Depart("it shuts down")]


# Away, and back


def test_a_node_that_is_away_does_nothing_while_the_others_train():
    seen = lent("away training training", "desk")
    assert moves(seen) == []
    assert moves(after(seen, 1e6)) == []


def test_the_ranks_are_started_when_the_owner_lets_go():
    assert isinstance(only(moves(lent("away training training"))), RestartRanks)
    for facts in ({"stopping": Stop("shelf")}, {"leaving": "it shuts down"}):
        seen = with_facts(lent("away training training"), "desk", **facts)
        assert not isinstance(only(moves(seen)), RestartRanks)


def test_the_vote_of_a_node_that_is_away_is_asked_for_only_where_it_decides():
    seen = lent("broken away broken", "laptop")
    assert only(moves(seen)).attempt.voters == ("desk", "shelf")
    alone = Votes(Config(7, ("laptop",)), (), counts=True)
    for node in NODES:
        seen = with_facts(seen, node, votes=alone)
    assert only(moves(seen)).attempt.voters == ("desk", "shelf", "laptop")


def test_the_first_team_is_formed_without_the_nodes_that_are_away():
    reports = [
        report("desk", "away", team=None, leaving=GAME, returns=True),
        *(report(node, "ready", team=None) for node in NODES[1:]),
    ]
    desk, laptop, shelf = reports
    proposed = only(moves(situation(laptop, desk, shelf, gone={})))
    assert (proposed.attempt.config.nodes, proposed.fresh) == (NODES[1:], True)
    assert proposed.attempt.leaving == ("desk",)


def test_a_run_of_which_all_nodes_are_away_waits_without_end_and_names_who_has_them():
    seen, mind = lent("away away away", *NODES), Mind()
    assert moves(seen, mind) == []
    said = only(moves(after(seen, BRIEF), mind))
    assert isinstance(said, SayWaiting)
    assert said.wanted == dict.fromkeys(NODES, GAME)
    for hours in range(1, 30):
        assert moves(after(seen, hours * 3600), mind) == []


@pytest.mark.parametrize("terms", [{"elastic": False}, {"min_nodes": 3}])
def test_a_run_that_needs_the_node_waits_for_it_without_end_and_not_for_a_lost_one(terms):
    seen = lent("paused paused away", "shelf", settings=TeamSettings(NODES, **terms))
    mind = Mind()
    moves(seen, mind)
    said = only(moves(after(seen, BRIEF), mind))
    assert (said.missing, said.wanted) == (("shelf",), {"shelf": GAME})
    for _ in range(29):
        seen = after(seen, 3600)
        assert moves(seen, mind) == []
    lost = replace(seen, heard={node: seen.heard[node] for node in NODES[1:2]})
    assert isinstance(moves(after(lost, 1), mind)[0], SayWaiting)
    assert moves(after(lost, 3590), mind) == []
    assert isinstance(moves(after(lost, 3610), mind)[0], SendVerdict)


@pytest.mark.parametrize(("me", "lost"), [("desk", "shelf"), ("laptop", "shelf")])
def test_no_time_counts_while_the_return_of_an_away_node_would_do_without_the_lost_one(me, lost):
    terms = TeamSettings(NODES, min_nodes=2)
    seen, mind = lent("broken away away", "laptop", lost, me=me, settings=terms), Mind()
    gone = {lost: Disconnection("broke off", seen.now)}
    heard = {node: each for node, each in seen.heard.items() if node != lost}
    seen = replace(seen, heard=heard, gone=gone)
    moves(seen, mind)
    said = only(moves(after(seen, BRIEF), mind))
    assert isinstance(said, SayWaiting)
    assert (said.missing, said.wanted) == (("laptop", lost), {"laptop": GAME})
    for _ in range(29):
        seen = after(seen, 3600)
        assert moves(seen, mind) == []


@pytest.mark.parametrize(
    ("terms", "last"),
    [({"min_nodes": 3}, NODES), ({"elastic": False}, NODES), ({}, ("shelf",))],
)
def test_time_counts_for_a_lost_node_that_no_away_one_can_stand_in_for(terms, last):
    votes = Votes(Config(5, last), (), counts=True)
    desk = report("desk", "broken", votes=votes)
    laptop = report("laptop", "away", votes=votes, leaving=GAME, returns=True)
    seen, mind = situation(desk, laptop, settings=TeamSettings(NODES, **terms)), Mind()
    moves(seen, mind)
    said = only(moves(after(seen, 3590), mind))
    assert isinstance(said, SayWaiting)
    assert (said.missing, said.wanted) == (("shelf",), {})
    ended, saves = moves(after(seen, 3610), mind)
    assert (type(ended), saves) == (SendVerdict, TellRanks(Leave(save=True)))
    assert "shelf" in ended.outcome.cause.message


def test_a_node_that_comes_back_to_the_team_that_it_left_has_failed_nothing():
    seen = lent("paused paused away", "shelf", settings=TeamSettings(NODES, elastic=False))
    mind = Mind()
    moves(seen, mind)
    back = lent("paused paused loaded", settings=TeamSettings(NODES, elastic=False))
    back = with_facts(back, "shelf", trained=0, generation=5)
    assert isinstance(moves(after(back, 60), mind)[-1], ProposeTeam)
    assert mind.memory.avoid == {}


def test_a_run_that_was_at_its_end_when_the_owner_wanted_the_last_machine_has_finished():
    seen = with_facts(lent("ended away away", *NODES), "desk", ended="finished")
    outcome = only(moves(seen)).outcome
    assert outcome.state == "finished"
    others = with_facts(seen, "laptop", state="training", trained=5)
    assert moves(others) == [RestRanks(GAME)]


def test_the_end_of_the_others_is_that_of_a_node_that_is_away_once_all_have_written():
    seen = with_facts(lent("away ended training", "desk"), "laptop", ended="finished")
    assert moves(seen) == []
    done = with_facts(seen, "shelf", state="ended", ended="finished")
    assert only(moves(done)).outcome.state == "finished"


# What the others are told


def informed(seen: State, *happens: Event) -> State:
    """Return the state of a node once these events have happened, a tenth of a second apart."""
    for event in happens:
        seen, _ = transition(seen, event, seen.now + 0.1)
    return seen


def test_a_wish_that_is_over_while_the_ranks_end_stands_until_they_have():
    seen = with_facts(lent("paused training training"), "laptop", parting=("desk",))
    seen = informed(seen, OwnerSays(GAME))
    assert seen.memory.told_leave
    seen = informed(seen, OwnerSays(""))
    assert seen.own.leaving == GAME
    seen = informed(seen, RankSaid(0, RankEnded("stopped", 7)), Tick())
    assert (seen.own.state, seen.own.leaving) == ("starting", "")


def test_a_wish_that_is_over_before_the_ranks_were_told_is_none():
    seen = informed(lent("training training training"), OwnerSays(GAME))
    assert seen.own.leaving == GAME
    assert informed(seen, OwnerSays("")).own.leaving == ""


def test_a_node_without_ranks_is_away_until_they_are_started():
    ranks = LocalRanks.starting(2).resting()
    assert (ranks.state, ranks.trained, ranks.choices) == ("away", 0, None)
    assert ranks.restarted().state == "starting"
