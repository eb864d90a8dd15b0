"""Scripts of events in virtual time: the actions of a node and its state after them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support import event_table
from support.facts import assert_names
from support.situations import CHOICES, NODES, TEAM, report, situation, with_facts

from hearth.ranks.control_protocol import Form, Formed, Leave, RankEnded
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.actions import (
    Conclude,
    RecordAway,
    RecordEnd,
    RecordTraining,
    SaveVotes,
    Say,
    StartTeam,
    StopRanks,
    Tell,
    TellRanks,
)
from hearth.supervisor.decisions.events import (
    Event,
    Gone,
    Joined,
    Leaves,
    OwnerSays,
    PeerSaid,
    RankSaid,
    RanksFailed,
    Saved,
    StopAsked,
    Tick,
)
from hearth.supervisor.decisions.state import State
from hearth.supervisor.decisions.transition import HANDLERS, RETRY, transition
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Attempt, Config, Votes
from hearth.supervisor.messages import NodeReport, Propose, RanksFailure, Stop, Vote

NEXT = Config(6, NODES)
FULL = "no space left"


def happen(state: State, *happens: Event, wait: float = 0.01) -> tuple[State, list]:
    """Return the state after events, `wait` seconds apart, and the actions that they led to."""
    actions = []
    for event in happens:
        state, more = transition(state, event, state.now + wait)
        actions += more
    return state, actions


def only(kind: type, actions: list):
    (found,) = [action for action in actions if isinstance(action, kind)]
    return found


def none(kind: type, actions: list) -> bool:
    return not any(isinstance(action, kind) for action in actions)


def sent(kind: type, actions: list) -> list:
    """Return the messages of a kind that were sent."""
    told = [action.message for action in actions if isinstance(action, Tell)]
    return [message for message in told if isinstance(message, kind)]


def waiting() -> State:
    """Return the state of desk as it waits with all others for a team to follow."""
    reports = [report(node, "broken") for node in NODES]
    return situation(*reports)


def proposing() -> tuple[State, list]:
    """Return the state of desk once it has promised a team, and its actions then."""
    state, actions = happen(waiting(), Tick())
    return happen(state, Saved(only(SaveVotes, actions)))


def vote(node: str, **changes) -> PeerSaid:
    given = {"generation": 6, "yes": True, "votes": Votes(TEAM, (NEXT,), True)} | changes
    return PeerSaid(node, Vote(**given))


# Votes


def test_a_team_is_promised_on_the_disk_then_asked_for_then_formed():
    state, actions = happen(waiting(), Tick())
    save = only(SaveVotes, actions)
    assert save.votes.attempts == (NEXT,)
    assert state.votes.attempts == ()
    assert sent(Propose, actions) == []
    state, actions = happen(state, Saved(save))
    assert state.votes == save.votes
    assert sent(Propose, actions) == [Propose(Attempt(NEXT, (), NODES, TEAM))] * 2
    state, actions = happen(state, vote("laptop"), vote("shelf"))
    assert only(StartTeam, actions).config == NEXT
    order = Form(6, NODES, "192.0.2.1", 1, ())
    state, actions = happen(state, PeerSaid("desk", order))
    state, actions = happen(state, Saved(only(SaveVotes, actions)))
    assert only(TellRanks, actions).order == order
    assert (state.votes, state.own.state) == (Votes(NEXT, (), counts=True), "forming")


def test_nobody_is_asked_and_nothing_answered_before_the_disk_has_it():
    state, actions = happen(waiting(), Tick())
    failed = Saved(only(SaveVotes, actions), FULL)
    state, actions = happen(state, failed)
    assert sent(Propose, actions) == []
    assert Say(FULL) in actions
    assert (state.votes.attempts, state.own.voteless) == ((), FULL)
    state, actions = happen(state, failed)
    assert Say(FULL) not in actions
    proposal = PeerSaid("laptop", Propose(Attempt(NEXT, (), NODES, TEAM)))
    state, actions = happen(replace(waiting(), node="desk"), proposal)
    assert sent(Vote, actions) == []
    state, actions = happen(state, Saved(only(SaveVotes, actions), FULL))
    (no,) = sent(Vote, actions)
    assert (no.yes, no.why, no.votes.attempts) == (False, FULL, ())


def test_a_disk_that_took_no_votes_is_tried_again():
    state, actions = happen(waiting(), Tick())
    state, _ = happen(state, Saved(only(SaveVotes, actions), FULL))
    state, actions = happen(state, Tick(), wait=RETRY / 2)
    assert none(SaveVotes, actions)
    state, actions = happen(state, Tick(), wait=RETRY)
    again = only(SaveVotes, actions)
    assert again == SaveVotes(state.votes)
    state, _ = happen(state, Saved(again))
    assert state.own.voteless == ""


def test_a_disk_that_is_full_since_the_promise_holds_up_no_team():
    state, _ = proposing()
    state, actions = happen(state, PeerSaid("desk", Form(6, NODES, "192.0.2.1", 1, ())))
    state, actions = happen(state, Saved(only(SaveVotes, actions), FULL))
    assert isinstance(only(TellRanks, actions).order, Form)
    assert (state.votes.committed, state.own.voteless) == (NEXT, FULL)


def test_an_order_for_a_team_that_was_not_promised_last_is_ignored():
    state, _ = proposing()
    state, actions = happen(state, PeerSaid("laptop", Form(9, NODES, "192.0.2.1", 1, ())))
    assert none(SaveVotes, actions)
    assert state.votes.committed == TEAM


def test_votes_for_another_proposal_or_too_late_do_not_count():
    state, _ = proposing()
    state, _ = happen(state, vote("laptop", generation=7))
    assert state.proposal.yes == {"desk"}
    late, actions = happen(state, vote("laptop"), wait=PROPOSAL_LIFETIME + 0.1)
    assert none(StartTeam, actions)
    assert late.proposal is None


def test_a_refusal_and_a_lost_voter_end_a_proposal():
    state, _ = proposing()
    no = vote("laptop", yes=False, why="its ranks are in a group")
    refused, actions = happen(state, no)
    assert refused.proposal is None
    assert_names(only(Say, actions).words, "laptop", "its ranks are in a group")
    assert happen(state, Gone("laptop", "silent for 6 s"))[0].proposal is None
    assert happen(state, Gone("tower", "silent for 6 s"))[0].proposal is not None


# Peers


def test_a_node_that_joins_is_told_how_things_stand_and_known_by_its_report():
    state = situation(report("desk", "ready", None), gone={}, team=None)
    state, actions = happen(state, Gone("laptop", "refused"), Joined("laptop"))
    assert "laptop" not in state.gone
    assert Tell(replace(state.own, connected=()), "laptop") in actions
    assert state.own.connected == ()
    state, _ = happen(state, PeerSaid("laptop", report("laptop", "ready", None)))
    assert state.own.connected == ("laptop",)
    spoofed, _ = happen(state, PeerSaid("laptop", report("shelf", "ready", None)))
    assert spoofed.heard.keys() == {"laptop"}


def test_a_report_is_sent_only_when_it_has_changed():
    _, actions = happen(situation(report("desk", "ready", None), gone={}), Tick(), Tick())
    assert len(sent(NodeReport, actions)) == 1


def test_a_node_in_the_queue_is_said_once_for_each_reason():
    state = situation(report("desk", "ready", None), gone={})
    waits = PeerSaid("laptop", report("laptop", "queued", None, why="waits for its turn"))
    state, actions = happen(state, waits, waits, waits)
    assert [each for each in actions if isinstance(each, Say)] == [
        Say("laptop waits for its turn there")
    ]
    assert "laptop" in state.missing
    state, actions = happen(state, Gone("laptop", "broke off"))  # its turn has come
    assert none(Say, actions)
    assert state.gone == {}


def test_the_verdict_of_another_node_is_passed_on_and_ends_this_one():
    verdict = LaunchOutcome("finished")
    _, actions = happen(waiting(), PeerSaid("laptop", verdict))
    assert actions == [Tell(verdict), Conclude(verdict, heard=True)]


def test_ranks_save_their_state_before_the_verdict_of_a_failed_run_ends_them():
    verdict = LaunchOutcome("failed", Cause("laptop", 1, "rank_failed", "ValueError: no"))
    state, actions = happen(waiting(), *[PeerSaid("laptop", verdict)] * 2)
    assert sent(LaunchOutcome, actions) == [verdict]
    assert only(TellRanks, actions).order == Leave(save=True)
    _, actions = happen(state, RankSaid(0, RankEnded("stopped", 7)))
    assert actions[-1] == Conclude(verdict, heard=True)


@pytest.mark.parametrize("first", [True, False])
def test_a_request_to_stop_is_passed_on_once_and_again_if_it_is_to_be_at_once(first):
    state = situation(*(report(node, "training") for node in NODES))
    stop, now = Stop("desk"), Stop("laptop", now=True)
    asked = StopAsked(stop) if first else PeerSaid("laptop", replace(stop, node="laptop"))
    state, actions = happen(state, asked, asked)
    assert len([each for each in actions if isinstance(each, StopRanks)]) == 1
    assert len(sent(Stop, actions)) == 1
    state, actions = happen(state, PeerSaid("laptop", now))
    assert StopRanks(now) in actions
    assert isinstance(actions[-1], Conclude)


def test_a_node_that_comes_hears_of_a_stop_by_the_report():
    state = situation(*(report(node, "training") for node in NODES))
    asked = replace(report("laptop", "training"), stopping=Stop("laptop"))
    state, actions = happen(state, PeerSaid("laptop", asked))
    assert (only(StopRanks, actions).stop, state.own.stopping) == (Stop("laptop"),) * 2


# The own ranks, the owner, and what is recorded


def test_the_training_and_its_end_are_on_record():
    state = situation(*(report(node, "forming", generation=6) for node in NODES), team=NEXT)
    state, actions = happen(state, RankSaid(0, Formed(6, 7, CHOICES)))
    assert only(RecordTraining, actions).config == NEXT
    state, _ = happen(state, Gone("shelf", "broke off"))
    ranks = with_facts(state, "desk", state="broken").ranks
    state, _ = happen(replace(state, ranks=ranks), Tick())
    order = Form(7, NODES[:2], "192.0.2.1", 1, ())
    votes = Votes(NEXT, (Config(7, NODES[:2]),), counts=True)
    state, actions = happen(replace(state, votes=votes), PeerSaid("laptop", order))
    state, actions = happen(state, Saved(only(SaveVotes, actions)))
    ended = only(RecordEnd, actions).cause
    assert (ended.node, ended.kind) == ("shelf", "node_lost")


def test_ranks_that_failed_are_the_cause_of_the_end_of_their_team():
    state = situation(*(report(node, "training") for node in NODES))
    state = replace(state, teams=replace(state.teams, trained=True))
    failure = RanksFailure(0, "rank 0 was killed by signal 9", curable=True)
    state, _ = happen(state, RanksFailed(failure))
    assert state.teams.broke == Cause.failed("desk", failure)


def test_an_owner_who_has_the_machine_and_says_another_reason_is_on_record():
    away = report("desk", "away", leaving="a game", returns=True)
    state = situation(away, report("laptop", "training"), report("shelf", "training"))
    state, actions = happen(state, OwnerSays("a film"), OwnerSays("a film"))
    assert [each for each in actions if isinstance(each, RecordAway)] == [RecordAway("a film")]


def test_a_node_leaves_for_the_first_reason():
    state = situation(*(report(node, "training") for node in NODES))
    state, _ = happen(state, Leaves("it shuts down"), Leaves("another"))
    assert state.own.leaving == "it shuts down"


def test_every_event_has_a_handler_and_a_row_in_the_docs():
    assert {*HANDLERS} == {*Event.__args__}
    names = [row.split("|")[1].strip() for row in event_table.events()[2:]]
    assert names == [event.__name__ for event in HANDLERS]
    page = event_table.PAGE.read_text()
    assert page == event_table.written(page), "make it anew: python -m tests.support.event_table"


def test_an_event_changes_no_state_that_another_may_still_hold():
    before = waiting()
    kept = repr(before)
    happen(before, Tick(), Gone("shelf", "broke off"), OwnerSays("a game"), Joined("shelf"))
    assert repr(before) == kept
