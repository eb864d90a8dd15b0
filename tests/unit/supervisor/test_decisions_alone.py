"""The moves of a node in one situation each, from what the node knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.facts import assert_names
from support.situations import (
    CHOICES,
    NODES,
    TEAM,
    Mind,
    answer,
    moves,
    report,
    situation,
    with_facts,
)

from hearth.ranks.control_protocol import Interrupt, Leave, LoadAlone, Pause
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.actions import (
    Conclude,
    Depart,
    DropProposal,
    ProposeTeam,
    RestartRanks,
    SayUnreached,
    SayWaiting,
    SendVerdict,
    StartTeam,
    TellRanks,
)
from hearth.supervisor.decisions.decide import BRIEF, to_prove
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.observe import parted
from hearth.supervisor.decisions.own_ranks import (
    FORM_TIMEOUT,
    LET_GO,
    OWN_END,
    SETTLE,
    SHUTDOWN_PATIENCE,
    STEP_PATIENCE,
)
from hearth.supervisor.decisions.state import LONG_START, WAITS, Disconnection, Proposal, State
from hearth.supervisor.decisions.team_record import TeamRecord
from hearth.supervisor.decisions.verdicts import (
    COLLECT,
    FUTILE,
    LASTING,
    LEAVE_TIMEOUT,
    LEFT_OUT_WITHIN,
)
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Attempt, Config, Refusal, Votes
from hearth.supervisor.messages import Propose, RanksFailure, Stop

KILLED = RanksFailure(1, "rank 1 was killed by signal 9 (SIGKILL)", curable=True)
TAKEN = "another machine has its address 192.0.2.3, too"
LOST = ("broke off", "silent for 6 s", "refused connections")
OUT_OF_MEMORY = RanksFailure(1, "torch.OutOfMemoryError: CUDA out of memory", local=True)
OFF_THE_BUS = RanksFailure(1, "RuntimeError: CUDA error: unspecified launch failure", local=True)
BAD_ROW = RanksFailure(1, "ValueError: the row is bad")


def everybody(states: str, me: str = "desk", **facts: object) -> State:
    """Return the view of `me` on a team whose nodes are in these states, in rank order.

    `gone` for a node that is not connected.
    """
    reports = {
        node: report(node, state)
        for node, state in zip(NODES, states.split(), strict=True)
        if state != "gone"
    }
    return situation(reports.pop(me), *reports.values(), **facts)


def first_start(states: str, **facts: object) -> State:
    reports = [
        report(node, state, team=None)
        for node, state in zip(NODES, states.split(), strict=True)
        if state != "gone"
    ]
    return situation(*reports, gone={}, **facts)


def end(found: list) -> Conclude:
    """Return a node's end, after its ranks may have saved their state."""
    first, *others = found
    if isinstance(first, SendVerdict):
        return Conclude(first.outcome)
    assert isinstance(first, Conclude) and not others
    return first


# The first start


@pytest.mark.parametrize("states", ["starting ready ready", "ready ready starting"])
def test_the_first_team_waits_for_ranks_that_are_not_ready(states):
    assert moves(first_start(states)) == []


def test_the_first_team_is_of_all_nodes_and_fresh_and_its_first_node_proposes_it():
    seen = first_start("ready ready ready", settings=TeamSettings(NODES, first_generation=4))
    (proposed,) = moves(seen)
    assert proposed == ProposeTeam(Attempt(Config(4, NODES), (), (), None), fresh=True)
    other = situation(seen.heard["laptop"].report, seen.own, seen.heard["shelf"].report, gone={})
    assert moves(other) == []


def test_missing_nodes_are_told_and_end_the_run_after_the_timeout():
    mind = Mind()
    (said,) = moves(first_start("ready ready gone", now=1), mind)
    assert (type(said), said.missing) == (SayWaiting, ("shelf",))
    assert moves(first_start("ready ready gone", now=120), mind) == []
    cause = end(moves(first_start("starting ready gone", now=121), mind)).outcome.cause
    assert (cause.node, cause.kind) == ("shelf", "not_ready")
    assert_names(cause.message, "shelf", "120 s")


def test_a_disk_that_takes_no_votes_is_named():
    seen = first_start("ready ready ready", now=121, settings=TeamSettings(NODES, elastic=False))
    seen = with_facts(seen, "laptop", voteless="disk is full")
    cause = end(moves(seen)).outcome.cause
    assert_names(cause.message, "laptop", "disk is full")


def test_a_node_whose_disk_keeps_it_out_of_a_team_that_trains_says_so():
    mind, pair = Mind(), Config(5, NODES[:2])
    others = [report(node, "training", pair) for node in NODES[:2]]
    own = report("shelf", "ready", None, voteless="the disk is full")
    (load, said) = moves(situation(own, *others, team=None), mind)
    assert (type(said), said.missing, said.why) == (SayWaiting, ("shelf",), "the disk is full")
    assert load == TellRanks(LoadAlone(CHOICES))
    later = situation(own, *others, team=None, now=10**6)
    assert moves(with_facts(later, "shelf", state="loaded"), mind) == []
    (said,) = moves(with_facts(later, "shelf", state="loaded", voteless=""), mind)
    assert said.missing == ()


def test_nodes_whose_ranks_are_long_in_getting_ready_are_told_and_end_nothing():
    mind = Mind()
    assert moves(first_start("ready starting ready", now=119), mind) == []
    (said,) = moves(first_start("ready starting ready", now=121), mind)
    assert (type(said), said.missing) == (SayWaiting, ("laptop",))
    assert moves(first_start("ready starting ready", now=7200), mind) == []
    said, proposed = moves(first_start("ready ready ready", now=7201), mind)
    assert said.missing == ()
    assert isinstance(proposed, ProposeTeam)
    assert moves(first_start("starting starting starting", now=121)) == []


# A team that trains


def test_a_team_that_trains_is_let_alone():
    assert moves(everybody("training training training")) == []


@pytest.mark.parametrize(
    ("why", "told"),
    [
        ("broke off", "the supervisor of shelf broke off: it was killed or the machine went down"),
        ("silent for 6 s", "shelf was silent for 6 s: it hangs, sleeps, or its network is cut"),
        ("suspended for 40 s", "desk itself was suspended for 40 s"),
        *((f"{why}{TAKEN}", f"shelf was lost ({why}): {TAKEN}") for why in LOST),
    ],
)
def test_ranks_are_interrupted_once_a_member_is_gone(why, told):
    why, taken, _ = why.partition(TAKEN)
    mind, gone = Mind(), {"shelf": Disconnection(why, 100.0, taken)}
    seen = everybody("training training gone", gone=gone)
    assert moves(seen, mind) == [TellRanks(Interrupt(5, told))]
    assert moves(seen, mind) == []


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"state": "breaking", "why": "Connection closed by peer"}, "Connection closed by peer"),
        ({"state": "broken"}, "broken"),
        ({"state": "failed", "failure": KILLED}, "signal 9"),
        ({"state": "starting", "trained": 0}, "starting"),
        ({"generation": 6}, "newer team"),
        ({"votes": Votes(TEAM, (Config(6, NODES),), True)}, "newer team"),
    ],
)
def test_ranks_are_interrupted_once_a_member_is_out_of_the_group(facts, told):
    (told_ranks,) = moves(with_facts(everybody("training training training"), "shelf", **facts))
    assert_names(told_ranks.order.why, "shelf", told)


@pytest.mark.parametrize("state", ["forming", "training", "paused", "ended"])
def test_a_member_that_is_still_with_its_group_breaks_nothing(state):
    assert moves(everybody(f"training training {state}")) == []


def test_a_member_that_never_gets_the_order_to_form_breaks_the_group():
    mind = Mind()
    seen = with_facts(everybody("forming forming paused"), "shelf", generation=4)
    assert moves(seen, mind) == []
    late = replace(seen, now=seen.now + FORM_TIMEOUT + 1)
    (told,) = moves(late, mind)
    assert_names(told.order.why, "shelf", "30 s")


# After a loss


def test_the_first_survivor_proposes_as_soon_as_all_survivors_wait():
    assert moves(everybody("broken training gone")) == []
    (proposed,) = moves(everybody("broken broken gone"))
    attempt = Attempt(Config(6, NODES[:2]), (), NODES[:2], TEAM)
    assert proposed == ProposeTeam(attempt, fresh=False)
    assert moves(everybody("broken broken gone", me="laptop")) == []
    (proposed,) = moves(everybody("gone broken broken", me="laptop"))
    assert proposed.attempt.config == Config(6, NODES[1:])


@pytest.mark.parametrize(
    ("terms", "told"),
    [({"elastic": False}, "elastic=off"), ({"min_nodes": 3}, "min_nodes"), ({}, "votes")],
)
def test_too_few_wait_and_say_for_whom_and_why(terms, told):
    states = "broken broken gone" if terms else "broken gone gone"
    mind = Mind()
    seen = everybody(states, settings=TeamSettings(NODES, **terms))
    assert moves(seen, mind) == []
    (said,) = moves(replace(seen, now=seen.now + BRIEF), mind)
    assert_names(said.why, told)
    assert "shelf" in said.missing
    assert moves(replace(seen, now=seen.now + 3600), mind) == []
    cause = end(moves(replace(seen, now=seen.now + 3601), mind)).outcome.cause
    assert cause.kind == "node_lost"
    assert_names(cause.message, "broke off", "did not come back within 3600 s", told)


def test_a_node_whose_others_have_ended_does_not_wait_long():
    gone = {node: Disconnection("refused", 0.0) for node in NODES[1:]}
    seen = situation(report("desk", "ready"), gone=gone, team=None, now=121)
    assert_names(end(moves(seen)).outcome.cause.message, "laptop, shelf", "120 s")


def test_a_limit_that_is_not_the_one_for_lost_nodes_is_named():
    gone = {name: Disconnection("refused", 0.0) for name in NODES[2:]}
    seen = everybody("broken broken gone", settings=TeamSettings(NODES, elastic=False))
    mind = Mind()
    moves(seen, mind)
    late = replace(seen, gone=gone, now=seen.now + 125)
    message = end(moves(late, mind)).outcome.cause.message
    assert_names(message, "within 120 s", "launch_ready_timeout", "launch_return_timeout")


def test_a_node_that_waits_for_its_turn_is_waited_for_until_long_after_its_last_word():
    terms = {"team": None, "settings": TeamSettings(NODES, first_timeout=600)}
    states = {"desk": "ready", "laptop": "ready", "shelf": "queued"}
    seen = situation(*(report(node, state, None) for node, state in states.items()), **terms)
    mind = Mind()
    assert [type(move) for move in moves(replace(seen, now=1), mind)] == [SayWaiting]
    assert moves(replace(seen, now=900), mind) == []
    gone = replace(seen, heard={"laptop": seen.heard["laptop"]})
    assert moves(replace(gone, now=1500), mind) == []
    cause = end(moves(replace(gone, now=1501), mind)).outcome.cause
    assert (cause.node, cause.kind) == ("shelf", "not_ready")
    assert_names(cause.message, "600 s")


def test_the_first_loss_ends_the_run_if_nobody_is_waited_for():
    seen = everybody("training training gone", settings=TeamSettings(NODES, return_timeout=0))
    cause = end(moves(seen)).outcome.cause
    assert (cause.node, cause.kind) == ("shelf", "node_lost")


def test_a_node_that_cannot_vote_is_left_out():
    seen = with_facts(everybody("broken broken broken"), "laptop", voteless="disk is full")
    (proposed,) = moves(seen)
    assert proposed.attempt.config.nodes == ("desk", "shelf")


def test_nodes_that_are_not_connected_to_each_other_are_in_no_team():
    seen = with_facts(everybody("broken broken broken"), "laptop", connected=("desk",))
    (proposed,) = moves(seen)
    assert proposed.attempt.config.nodes == ("desk", "laptop")


# A proposal in flight


def proposed(yes: str, **facts: object) -> State:
    attempt = Attempt(Config(6, NODES), (), NODES, TEAM)
    given = {"since": 100.0, "yes": frozenset(yes.split())} | facts
    return everybody("broken broken broken", proposal=Proposal(attempt, False, **given))


def test_a_team_starts_once_all_have_promised():
    assert moves(proposed("desk laptop")) == []
    assert moves(proposed("desk laptop shelf")) == [StartTeam(Config(6, NODES), fresh=False)]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"refused": {"shelf": "it has promised another"}}, "shelf refused: it has promised"),
        ({"since": 100 - PROPOSAL_LIFETIME}, "shelf did not answer within 2 s"),
    ],
)
def test_a_proposal_fails_and_is_made_again_a_moment_later(facts, told):
    mind = Mind()
    seen = proposed("desk laptop", **facts)
    (dropped,) = moves(seen, mind)
    assert_names(dropped.why, told)
    again = replace(seen, proposal=None)
    assert moves(again, mind) == []
    assert isinstance(*moves(replace(again, now=again.now + 1), mind), ProposeTeam)


def silences(yes: str, count: int) -> tuple[Mind, list]:
    """Return the mind and the next moves of desk after proposals that only `yes` answered."""
    mind, now = Mind(), 100.0
    for _ in range(count):
        seen = replace(proposed(yes, since=now - PROPOSAL_LIFETIME), now=now)
        assert isinstance(*moves(seen, mind), DropProposal)
        now += 1
    return mind, moves(replace(seen, proposal=None, now=now), mind)


def test_who_does_not_vote_twice_in_a_row_is_left_out_if_others_can_go_on():
    _, (again,) = silences("desk laptop", 1)
    assert again.attempt.config.nodes == NODES
    mind, (without,) = silences("desk laptop", 2)
    assert without.attempt.config.nodes == ("desk", "laptop")
    assert mind.memory.avoided(now=100.0) == {"shelf"}
    _, (needed,) = silences("desk", 2)
    assert needed.attempt.config.nodes == NODES


def test_who_has_not_voted_before_is_left_out_at_once_and_for_longer():
    mind, _ = silences("desk laptop", 2)
    seen = replace(proposed("desk laptop", since=200.0), now=200.0 + PROPOSAL_LIFETIME)
    moves(seen, mind)
    assert mind.memory.avoid["shelf"] == seen.now + 20


def test_a_promise_that_comes_too_late_is_none():
    seen = proposed("desk laptop shelf", since=100 - PROPOSAL_LIFETIME)
    assert isinstance(*moves(seen), DropProposal)


def test_a_voter_that_is_gone_ends_a_proposal():
    seen = proposed("desk laptop")
    seen = replace(seen, heard={"laptop": seen.heard["laptop"]})
    assert_names(moves(seen)[0].why, "shelf")


def test_a_node_promises_if_its_ranks_wait_and_keeps_to_it():
    attempt = Attempt(Config(6, NODES), (), NODES, TEAM)
    seen, mind = everybody("broken broken broken", me="shelf"), Mind()
    votes = answer(seen, mind, Propose(attempt), "desk")
    assert isinstance(votes, Votes)
    seen = replace(seen, votes=votes)
    other = Propose(replace(attempt, config=Config(7, NODES)))
    refusal = answer(seen, mind, other, "laptop")
    assert isinstance(refusal, Refusal)
    assert_names(refusal.reason, "shelf", "promised desk")
    assert isinstance(answer(seen, mind, other, "desk"), Votes)
    later = replace(seen, now=seen.now + PROPOSAL_LIFETIME + 0.1)
    assert isinstance(answer(later, mind, other, "laptop"), Votes)


@pytest.mark.parametrize(
    ("states", "facts", "told"),
    [
        ("broken broken training", {}, "do not wait"),
        ("broken broken ready", {}, "do not wait"),
        ("broken gone broken", {}, "not connected to laptop"),
        ("broken broken broken", {"voteless": "disk is full"}, "disk is full"),
        ("broken broken broken", {"stopping": Stop("shelf")}, "ends"),
    ],
)
def test_a_node_that_cannot_be_in_a_team_refuses(states, facts, told):
    seen, mind = with_facts(everybody(states, me="shelf"), "shelf", **facts), Mind()
    moves(seen, mind)
    refusal = answer(seen, mind, Propose(Attempt(Config(6, NODES), (), NODES, TEAM)), "desk")
    assert isinstance(refusal, Refusal)
    assert_names(refusal.reason, told)


# Nodes that come and go


def joining(state: str, **facts: object) -> State:
    """Return desk's view on a team of desk and laptop, while shelf is in another state."""
    team = Config(6, NODES[:2])
    reports = [report(node, "training", team) for node in NODES[:2]]
    seen = situation(*reports, report("shelf", state, TEAM), team=team)
    return with_facts(seen, "shelf", **facts) if facts else seen


@pytest.mark.parametrize("state", ["starting", "ready", "loading", "failed"])
def test_a_node_that_has_not_loaded_disturbs_nobody(state):
    assert moves(joining(state, failure=KILLED)) == []


@pytest.mark.parametrize("state", ["loaded", "broken", "paused"])
def test_the_team_pauses_once_for_a_node_that_has_loaded(state):
    mind, seen = Mind(), joining(state)
    assert moves(seen, mind) == [TellRanks(Pause(6))]
    assert moves(seen, mind) == []


@pytest.mark.parametrize("facts", [{"connected": ("desk",)}, {"voteless": "disk is full"}])
def test_nobody_pauses_for_a_node_that_could_not_join(facts):
    assert moves(joining("loaded", **facts)) == []


@pytest.mark.parametrize(
    ("node", "facts"),
    [
        ("desk", {"reached": ()}),
        ("desk", {"reached": ("laptop",)}),
        ("desk", {"joining": ()}),  # proved before this node was there
        ("laptop", {"reached": ("shelf",)}),  # the members' own ring has to be made anew, too
        ("shelf", {"joining": ("tower",)}),
        ("shelf", {"reached": ("desk",)}),
    ],
)
def test_nobody_pauses_before_all_have_proved_that_they_reach_each_other(node, facts):
    assert moves(with_facts(joining("loaded"), node, **facts)) == []


WALL = "at 192.0.2.2 port 40001: no answer on TCP (firewall?)"


@pytest.mark.parametrize("pair", [("shelf", "laptop"), ("laptop", "shelf"), ("desk", "laptop")])
def test_a_pair_that_does_not_reach_each_other_is_named_and_nobody_pauses(pair):
    node, other = pair
    mind, seen = Mind(), with_facts(joining("loaded"), node, unreached={other: WALL})
    (said,) = moves(seen, mind)
    assert said == SayUnreached((f"{node} cannot reach {other} {WALL}",))
    assert moves(seen, mind) == []
    healed = joining("loaded")
    assert moves(healed, mind) == [TellRanks(Pause(6)), SayUnreached(())]


def test_after_a_loss_the_survivors_need_no_proof_but_those_without_a_way_do_not_try():
    unproved = {"reached": (), "joining": ()}
    seen = everybody("broken broken gone")
    for node in NODES[:2]:
        seen = with_facts(seen, node, **unproved)
    (proposed,) = moves(seen)
    assert proposed.attempt.config == Config(6, NODES[:2])
    seen = everybody("broken broken broken")
    seen = with_facts(seen, "shelf", unreached={"laptop": WALL})
    _, proposed = moves(seen)
    assert proposed.attempt.config.nodes in (("desk", "laptop"), ("desk", "shelf"))


def test_the_first_team_waits_for_proofs_and_names_the_pair_without_a_way():
    seen = first_start("ready ready ready")
    assert moves(with_facts(seen, "laptop", reached=("desk",))) == []
    walled = with_facts(seen, "shelf", unreached={"laptop": WALL})
    named, waits = moves(walled)
    assert named == SayUnreached((f"shelf cannot reach laptop {WALL}",))
    assert_names(waits.why, "shelf cannot reach laptop", "firewall")


def test_a_node_proves_its_ways_only_while_another_joins():
    assert to_prove(everybody("training training training")) == ((), ())
    assert to_prove(joining("loading")) == ((), ())
    assert to_prove(joining("loaded")) == (("laptop", "shelf"), ("shelf",))
    seen = with_facts(everybody("training training training"), "desk", unreached={"shelf": WALL})
    assert to_prove(seen) == (("shelf",), ())
    assert to_prove(first_start("ready starting ready")) == (("shelf",), ("desk", "shelf"))


def test_a_node_that_is_back_loads_while_the_others_train():
    team = Config(6, NODES[:2])
    others = [report(node, "training", team) for node in NODES[:2]]
    assert moves(situation(report("shelf", "ready"), *others)) == [TellRanks(LoadAlone(CHOICES))]
    assert moves(situation(report("shelf", "loaded"), *others)) == []


def test_all_that_wait_form_the_larger_team():
    team = Config(6, NODES[:2])
    others = [report(node, "paused", team) for node in NODES[:2]]
    (proposed,) = moves(situation(others[0], others[1], report("shelf", "loaded"), team=team))
    assert proposed.attempt.config == Config(7, NODES)


def test_a_member_that_leaves_hands_in_its_vote():
    seen = with_facts(everybody("training training training"), "desk", leaving="it shuts down")
    assert moves(seen) == [TellRanks(Pause(5))]
    paused = with_facts(everybody("paused paused paused", "laptop"), "desk", leaving="shuts down")
    (proposed,) = moves(paused)
    assert (proposed.attempt.config.nodes, proposed.attempt.leaving) == (NODES[1:], ("desk",))


def test_a_node_that_leaves_goes_once_the_others_have_a_team_without_it():
    mind = Mind()
    seen = with_facts(everybody("paused paused paused"), "desk", leaving="it shuts down")
    assert moves(seen, mind) == []
    seen = with_facts(with_facts(seen, "laptop", generation=6), "shelf", generation=6)
    assert moves(seen, mind) == [TellRanks(Leave(save=True))]
    assert moves(seen, mind) == []
    gone = with_facts(seen, "desk", state="ended", ended="stopped")
    assert moves(gone, mind) == [Depart("it shuts down")]


def test_a_node_that_leaves_alone_or_is_not_let_go_goes_all_the_same():
    alone = with_facts(everybody("broken gone gone"), "desk", leaving="it shuts down")
    assert moves(alone) == [TellRanks(Leave(save=True))]
    mind = Mind()
    stuck = with_facts(everybody("training training training"), "laptop", state="forming")
    stuck = with_facts(stuck, "desk", leaving="it shuts down")
    assert moves(stuck, mind) == []
    late = replace(stuck, now=stuck.now + SHUTDOWN_PATIENCE + 1)
    assert moves(late, mind) == [TellRanks(Interrupt(5, "desk leaves: it shuts down"))]
    late = replace(stuck, now=stuck.now + LEAVE_TIMEOUT + 1)
    assert moves(late, mind) == [Depart("it shuts down")]


def test_a_node_that_leaves_breaks_off_a_long_step_and_stays_to_vote():
    mind = Mind()
    seen = with_facts(everybody("training training training"), "desk", leaving="it shuts down")
    assert moves(seen, mind) == [TellRanks(Pause(5))]
    late = replace(seen, now=seen.now + SHUTDOWN_PATIENCE + 1)
    assert moves(late, mind) == [TellRanks(Interrupt(5, "desk leaves: it shuts down"))]
    out = with_facts(everybody("broken broken broken"), "desk", leaving="it shuts down")
    assert moves(replace(out, now=late.now + 1), mind) == []
    attempt = Attempt(Config(6, NODES[1:]), ("desk",), NODES, TEAM)
    assert isinstance(answer(out, mind, Propose(attempt), "laptop"), Votes)
    gone = replace(out, now=late.now + 1 + LET_GO + 1)
    assert moves(gone, mind) == [TellRanks(Leave(save=True))]


# Nobody has the state any more


def test_after_a_loss_of_all_ranks_the_rest_waits_a_moment_and_starts_fresh():
    mind, seen = Mind(), everybody("ready ready gone", gone={}, now=1)
    assert [type(move) for move in moves(seen, mind)] == [SayWaiting]
    waited = moves(replace(seen, now=SETTLE + 1), mind)
    fresh = [move for move in waited if isinstance(move, ProposeTeam)]
    assert [(move.fresh, move.attempt.config.nodes) for move in fresh] == [(True, NODES[:2])]


def test_ranks_that_do_not_get_ready_hold_up_the_others_for_a_while_only():
    mind, seen = Mind(), everybody("ready ready starting", now=1)
    assert moves(seen, mind) == []
    assert moves(replace(seen, now=seen.settings.ready_timeout), mind) == []
    (proposed,) = moves(replace(seen, now=seen.settings.ready_timeout + 1), mind)
    assert proposed.fresh
    assert proposed.attempt.config.nodes == NODES[:2]


def test_ranks_that_have_loaded_for_nothing_are_started_again():
    mind, seen = Mind(), everybody("loaded ready gone", gone={}, now=1)
    assert not any(isinstance(move, RestartRanks) for move in moves(seen, mind))
    (restart,) = moves(replace(seen, now=SETTLE + 2), mind)
    assert isinstance(restart, RestartRanks)
    assert_names(restart.why, "state of the run")


# Groups that cannot be formed


def broken_form(me: str, trained: str, **facts: object) -> State:
    """Return the view of `me` on a broken group; `trained` says when each node trained last."""
    seen = everybody("broken broken broken", me, **facts)
    for node, generation in zip(NODES, trained.split(), strict=True):
        seen = with_facts(seen, node, trained=int(generation))
    return seen


def test_a_node_that_did_not_form_the_group_is_left_out_for_a_while():
    mind = Mind()
    (proposed,) = moves(broken_form("desk", "4 4 0"), mind)
    assert proposed.attempt.config.nodes == NODES[:2]


@pytest.mark.parametrize(
    ("trained", "restarted"), [("4 4 0", {"shelf"}), ("4 4 4", {"laptop", "shelf"})]
)
def test_ranks_that_did_not_form_a_group_twice_in_a_row_are_started_again(trained, restarted):
    found = set()
    for node in NODES:
        mind = Mind()
        moves(broken_form(node, trained), mind)
        again = broken_form(node, trained)
        for each in NODES:
            again = with_facts(again, each, generation=6)
        again = replace(again, teams=TeamRecord(Config(6, NODES)), now=again.now + 1)
        if any(isinstance(move, RestartRanks) for move in moves(again, mind)):
            found.add(node)
    assert found == restarted


def test_a_node_that_never_forms_a_group_holds_up_the_others_more_and_more_seldom():
    mind, now, waits = Mind(), 100.0, []
    for generation in range(5, 14, 2):
        seen = broken_form("desk", f"{generation - 1} {generation - 1} 0")
        for node in NODES:
            seen = with_facts(seen, node, generation=generation, step=generation)
        moves(replace(seen, teams=TeamRecord(Config(generation, NODES)), now=now), mind)
        waits.append(mind.memory.avoid["shelf"] - now)
        without = joining("loaded")
        for node in NODES[:2]:
            without = with_facts(without, node, generation=generation + 1, trained=generation + 1)
        team = Config(generation + 1, NODES[:2])
        assert moves(replace(without, teams=TeamRecord(team), now=now + 1), mind) == []
        now = mind.memory.avoid["shelf"] + 1
    assert waits == [10, 20, 40, 80, 160]
    team = Config(20, NODES)
    seen = everybody("training training training", team=team)
    for node in NODES:
        seen = with_facts(seen, node, generation=20, trained=20)
    moves(seen, mind)
    assert not mind.memory.strikes


def breaks(steps: list[int]) -> list:
    """Return the moves of desk after its group broke at each of these steps without a loss."""
    mind, found = Mind(), []
    for generation, step in enumerate(steps, start=5):
        seen = everybody("broken broken broken", team=Config(generation, NODES))
        for node in NODES:
            seen = with_facts(
                seen, node, generation=generation, trained=generation, step=step, why="a bad cable"
            )
        found = moves(replace(seen, now=100.0 + generation), mind)
    return found


def test_breaks_without_a_step_gained_end_the_run():
    assert isinstance(*breaks([7] * (FUTILE - 1)), ProposeTeam)
    assert isinstance(*breaks([6] + [7] * (FUTILE - 1)), ProposeTeam)
    cause = end(breaks([7] * FUTILE)).outcome.cause
    assert_names(cause.message, "desk, laptop, shelf", f"{FUTILE} times in a row", "a bad cable")


def test_ranks_that_were_killed_and_have_loaded_again_join_those_that_waited_at_once():
    mind, whole = Mind(), TeamSettings(NODES, elastic=False)
    for state in ("starting", "loaded"):
        seen = everybody(f"{state} broken broken", team=TEAM, settings=whole)
        seen = with_facts(seen, "desk", generation=5, trained=0)
        found = moves(seen, mind)
    assert found[-1].attempt.config.nodes == NODES
    assert not mind.memory.strikes
    assert mind.memory.broken.count == 0


def test_a_first_group_that_cannot_be_formed_again_and_again_ends_the_run():
    def tries(count: int, why: str) -> list:
        mind, found = Mind(), []
        for generation in range(5, 5 + count):
            team = Config(generation, NODES)
            facts = {"generation": generation, "why": why}
            reports = [report(node, "ready", team, **facts) for node in NODES]
            found = moves(situation(*reports, gone={}, now=100.0 + generation), mind)
        return found

    assert isinstance(*tries(FUTILE - 1, "desk port 1 did not answer"), ProposeTeam)
    cause = end(tries(FUTILE, "desk port 1 did not answer")).outcome.cause
    assert_names(cause.message, "desk, laptop, shelf", f"{FUTILE} times in a row", "port 1")
    # Ranks that were started again since have been in no group.
    assert isinstance(*tries(FUTILE, ""), ProposeTeam)


# Errors of ranks


def fails_until_futile(seen: State, failure: RanksFailure, mind: Mind) -> tuple[State, list]:
    """Have the ranks of the view's node fail until they are started no more; return the last view.

    Between two failures they live again, in no group. What the node does then comes with it.
    """
    failed = with_facts(seen, seen.node, state="failed", failure=failure)
    for wait in WAITS:
        if wait:
            assert moves(failed, mind) == []
        failed = replace(failed, now=failed.now + wait)
        assert moves(failed, mind) == [RestartRanks(failure.message)]
        moves(with_facts(failed, seen.node, state="starting", failure=None), mind)
    return failed, moves(failed, mind)


def test_a_killed_rank_is_started_again_and_not_for_ever():
    mind, seen = Mind(), everybody("failed starting starting")
    last, found = fails_until_futile(seen, KILLED, mind)
    assert last.now - seen.now > 60  # what is gone for a minute ends nothing
    conclude = end(found)
    assert conclude.everywhere
    assert_names(conclude.outcome.cause.message, "signal 9", f"{FUTILE} starts in a row")


@pytest.mark.parametrize("failure", [KILLED, OUT_OF_MEMORY, OFF_THE_BUS])
def test_the_others_have_time_to_go_on_without_a_node_before_the_run_ends(failure):
    mind = Mind()
    last, found = fails_until_futile(everybody("failed broken broken"), failure, mind)
    assert found == []
    late = replace(last, now=last.now + LEFT_OUT_WITHIN)
    assert end(moves(late, mind)).everywhere


@pytest.mark.parametrize("failure", [OUT_OF_MEMORY, OFF_THE_BUS])
@pytest.mark.parametrize("states", ["failed training training", "failed broken broken"])
def test_an_error_of_one_machine_ends_nothing_while_others_have_the_state(states, failure):
    mind = Mind()
    seen = with_facts(everybody(states), "desk", failure=failure)
    assert moves(seen, mind) == [RestartRanks(failure.message)]
    for node in NODES[1:]:
        others = {each: seen.reports[each] for each in NODES}
        other = situation(others.pop(node), *others.values())
        late = replace(other, now=other.now + 100)
        assert not any(isinstance(move, Conclude) for move in moves(late))


@pytest.mark.parametrize("states", ["failed starting starting", "failed failed failed"])
def test_an_error_of_one_machine_ends_the_run_if_nobody_else_has_the_state(states):
    mind, seen = Mind(), everybody(states)
    for node, each in seen.reports.items():
        if each.state == "failed":
            seen = with_facts(seen, node, failure=OUT_OF_MEMORY)
    moves(seen, mind)
    ended = end(moves(replace(seen, now=seen.now + COLLECT), mind))
    assert ended.everywhere
    assert ended.outcome.cause.message == OUT_OF_MEMORY.message


def test_an_error_of_one_machine_does_not_spoil_the_end_of_the_others():
    seen = with_facts(everybody("ended ended failed"), "shelf", failure=OUT_OF_MEMORY)
    for node in NODES[:2]:
        seen = with_facts(seen, node, ended="finished")
    mind = Mind()
    found = moves(seen, mind) + moves(replace(seen, now=seen.now + COLLECT), mind)
    assert end(found[:1]).outcome.state == "finished"


@pytest.mark.parametrize(("trained", "tries"), [(LASTING - 1, 2), (LASTING + 1, 1)])
def test_steps_gained_do_not_excuse_an_error_of_the_machine_but_a_long_time_does(trained, tries):
    mind, seen = Mind(), everybody("training training training", gained=9)
    for _ in range(2):
        moves(seen, mind)
        seen = replace(seen, now=seen.now + trained)
        moves(with_facts(seen, "desk", state="failed", failure=OUT_OF_MEMORY), mind)
        moves(with_facts(seen, "desk", state="starting", trained=0), mind)
    assert mind.memory.restarts == tries


def test_steps_gained_excuse_a_killed_rank():
    mind, seen = Mind(), everybody("training training training", gained=9)
    for _ in range(2 * FUTILE):
        moves(seen, mind)
        failed = with_facts(seen, "desk", state="failed", failure=KILLED)
        assert moves(failed, mind) == [RestartRanks(KILLED.message)]
        moves(with_facts(seen, "desk", state="starting", trained=0), mind)


def test_a_node_whose_ranks_are_to_be_started_again_has_a_vote():
    # Of two nodes the first decides: without its vote the other one would have to wait for it.
    pair, settings = Config(5, NODES[:2]), TeamSettings(NODES[:2])
    failed = report("desk", "failed", pair, failure=OFF_THE_BUS, generation=5)
    waits = report("laptop", "broken", pair)
    other = situation(waits, failed, settings=settings, gone={}, team=pair)
    (proposed,) = moves(other)
    assert proposed.attempt == Attempt(Config(6, ("laptop",)), ("desk",), NODES[:2], pair)
    own = situation(failed, waits, settings=settings, gone={}, team=pair)
    assert isinstance(answer(own, Mind(), Propose(proposed.attempt, False), "laptop"), Votes)


@pytest.mark.parametrize("state", ["breaking", "broken"])
def test_relaunched_ranks_have_time_to_tell_their_own_error_after_those_of_another_node(state):
    relaunched = TeamSettings(NODES, relaunched=True)
    seen = everybody(f"training {state} training", team=TEAM, settings=relaunched)
    assert moves(seen) == []
    (told,) = moves(replace(seen, now=seen.now + OWN_END + 1))
    assert isinstance(told.order, Interrupt)


@pytest.mark.parametrize("failure", [KILLED, OUT_OF_MEMORY])
@pytest.mark.parametrize("elastic", [True, False])
def test_a_node_that_fails_again_and_again_ends_its_own_part_if_others_can_go_on(elastic, failure):
    seen = joining("loaded")
    own, others = seen.heard["shelf"].report, (seen.own, seen.heard["laptop"].report)
    mind, terms = Mind(), TeamSettings(NODES, elastic=elastic)
    _, found = fails_until_futile(situation(own, *others, settings=terms), failure, mind)
    ended = end(found)
    assert ended.everywhere != elastic
    if elastic:
        assert_names(ended.outcome.cause.message, failure.message, "shelf is left out")


def test_an_error_of_a_node_that_was_about_to_join_ends_only_its_own_part():
    seen = with_facts(joining("loading"), "shelf", state="failed", failure=BAD_ROW)
    assert moves(seen) == []
    own, others = seen.heard["shelf"].report, (seen.own, seen.heard["laptop"].report)
    ended = end(moves(situation(own, *others)))
    assert not ended.everywhere
    assert (ended.outcome.state, ended.outcome.cause.message) == ("failed", BAD_ROW.message)


def test_an_error_of_ranks_that_trained_ends_the_run_though_the_others_have_gone_on():
    mind = Mind()
    seen = joining("loading")
    seen = with_facts(seen, "shelf", state="failed", failure=BAD_ROW, trained=3)
    assert moves(seen, mind) == []
    late = end(moves(replace(seen, now=seen.now + COLLECT), mind))
    assert late.everywhere
    assert late.outcome.cause.node == "shelf"


def test_such_an_error_does_not_spoil_the_end_of_the_others():
    seen = with_facts(joining("loading"), "shelf", state="failed", failure=BAD_ROW)
    for node in NODES[:2]:
        seen = with_facts(seen, node, state="ended", ended="finished")
    assert end(moves(seen)).outcome.state == "finished"


@pytest.mark.parametrize(("me", "after"), [("desk", 0), ("laptop", 0.5)])
def test_an_error_of_a_ranks_own_ends_the_run_once_others_had_time_to_tell_theirs(me, after):
    mind = Mind()
    seen = with_facts(everybody("broken failed failed", me), "laptop", failure=BAD_ROW)
    seen = with_facts(
        seen, "shelf", failure=RanksFailure(2, "RuntimeError: Connection closed by peer")
    )
    assert not any(isinstance(move, Conclude) for move in moves(seen, mind))
    late = replace(seen, now=seen.now + COLLECT + after)
    cause = end(moves(late, mind)).outcome.cause
    assert (cause.node, cause.rank, cause.kind) == ("laptop", 1, "rank_failed")
    assert cause.message == BAD_ROW.message


def test_a_killed_rank_ends_the_run_if_the_first_loss_does():
    seen = with_facts(everybody("failed broken broken"), "desk", failure=KILLED)
    assert end(moves(replace(seen, settings=TeamSettings(NODES, return_timeout=0))))


# The end


def test_a_run_has_finished_once_the_ranks_of_all_members_have():
    seen = everybody("ended ended training")
    for node in NODES[:2]:
        seen = with_facts(seen, node, ended="finished")
    assert moves(seen) == []
    done = with_facts(seen, "shelf", state="ended", ended="finished")
    assert end(moves(done)).outcome.state == "finished"


def test_ranks_that_missed_the_end_leave():
    mind = Mind()
    seen = with_facts(everybody("broken ended ended"), "laptop", ended="finished")
    assert moves(seen, mind) == [TellRanks(Leave(save=False))]
    left = with_facts(seen, "desk", state="ended", ended="stopped")
    assert end(moves(left, mind)).outcome.state == "finished"


@pytest.mark.parametrize("state", ["starting", "failed", "loading"])
def test_a_node_that_was_away_at_the_end_ends_with_the_others(state):
    seen = with_facts(everybody(f"{state} ended ended"), "laptop", ended="finished")
    seen = with_facts(seen, "desk", failure=KILLED if state == "failed" else None)
    assert end(moves(seen)).outcome.state == "finished"


@pytest.mark.parametrize(
    ("states", "ordered"),
    [
        ("training training training", []),
        ("broken broken gone", [TellRanks(Leave(save=True))]),
        ("paused paused paused", [TellRanks(Leave(save=True))]),
    ],
)
def test_ranks_in_a_group_stop_by_themselves_and_others_save_their_state(states, ordered):
    seen = with_facts(everybody(states), "laptop", stopping=Stop("laptop"))
    assert moves(seen) == ordered


@pytest.mark.parametrize("states", ["starting ready ready", "ready ready ready"])
def test_a_stop_before_the_start_ends_at_once(states):
    seen = with_facts(first_start(states), "desk", stopping=Stop("laptop"))
    cause = end(moves(seen)).outcome.cause
    assert (cause.node, cause.message) == ("laptop", "stopped waiting, as asked on laptop")


def test_a_stop_at_once_does_not_wait_and_says_why():
    stop = Stop("shelf", now=True, why="Slurm ends the job")
    seen = with_facts(everybody("training training training"), "shelf", stopping=stop)
    outcome = end(moves(seen)).outcome
    assert (outcome.state, outcome.cause.message) == (
        "stopped",
        "stopped at once: Slurm ends the job",
    )


def test_nobody_is_taken_in_while_a_run_stops():
    assert moves(with_facts(joining("loaded"), "desk", stopping=Stop("desk"))) == []


def test_a_stopped_run_ends_once_all_have_stopped():
    seen = with_facts(everybody("ended ended ended"), "desk", stopping=Stop("laptop"))
    for node in NODES:
        seen = with_facts(seen, node, ended="stopped")
    outcome = end(moves(seen)).outcome
    assert (outcome.state, outcome.cause.node) == ("stopped", "laptop")


def test_a_node_whose_ranks_are_long_in_starting_has_a_vote():
    # As where a card is gone: of two nodes the first decides.
    pair, settings = Config(5, NODES[:2]), TeamSettings(NODES[:2])
    starting = report("desk", "starting", pair, generation=5)
    waits = report("laptop", "broken", pair)
    seen = situation(waits, starting, settings=settings, gone={}, team=pair)
    assert not any(isinstance(move, ProposeTeam) for move in moves(seen))
    late = replace(seen, now=seen.now + LONG_START + 1)
    assert any(
        isinstance(move, ProposeTeam) and move.attempt.config.nodes == ("laptop",)
        for move in moves(late)
    )


# The record of a loss


def test_each_of_two_nodes_that_are_lost_together_has_its_own_reason():
    gone = {
        "laptop": Disconnection("silent for 6 s", 94.0),
        "shelf": Disconnection("broke off", 99.0),
    }
    found = parted(everybody("broken gone gone", gone=gone), ["desk"])
    assert_names(found["laptop"], "laptop was silent for 6 s")
    assert_names(found["shelf"], "supervisor of shelf broke off")
    failed = with_facts(everybody("broken failed away"), "laptop", failure=OFF_THE_BUS)
    failed = with_facts(failed, "shelf", leaving="a game runs", returns=True)
    assert parted(failed, ["desk"]) == {
        "laptop": OFF_THE_BUS.message,
        "shelf": "away: a game runs",
    }


# A run that ends by an error


LOSS = LaunchOutcome("failed", Cause("shelf", 1, "rank_failed", BAD_ROW.message))


@pytest.mark.parametrize("state", ["training", "broken"])
def test_healthy_ranks_write_a_checkpoint_before_a_run_ends_by_an_error(state):
    mind = Mind()
    seen = everybody(f"{state} {state} failed")
    seen = with_facts(seen, "shelf", failure=BAD_ROW, generation=5)
    first = moves(seen, mind)
    if state == "training":
        assert isinstance(first[0].order, Interrupt)
        seen = with_facts(seen, "desk", state="broken")
    late = replace(seen, now=seen.now + COLLECT)
    assert moves(late, mind) == [SendVerdict(LOSS), TellRanks(Leave(save=True))]
    assert moves(replace(late, now=late.now + 500), mind) == []  # it takes its time
    saved = with_facts(late, "desk", state="ended", ended="stopped")
    assert moves(saved, mind) == [Conclude(LOSS)]


def test_a_verdict_of_another_node_gets_healthy_ranks_out_of_their_group_to_save():
    mind, seen = Mind(), everybody("training training training", verdict=LOSS)
    (out,) = moves(seen, mind)
    assert_names(out.order.why, BAD_ROW.message)
    assert moves(seen, mind) == []
    out_of_it = with_facts(seen, "desk", state="broken")
    assert moves(out_of_it, mind) == [TellRanks(Leave(save=True))]


@pytest.mark.parametrize("states", ["failed broken broken", "starting broken broken"])
def test_a_node_with_nothing_to_save_ends_at_once(states):
    seen = with_facts(everybody(states, verdict=LOSS), "desk", trained=0, failure=BAD_ROW)
    assert moves(seen) == [Conclude(LOSS)]


def test_a_rank_that_does_not_get_out_of_its_group_holds_up_no_end_for_ever():
    mind, seen = Mind(), everybody("training training training", verdict=LOSS)
    moves(seen, mind)
    late = replace(seen, now=seen.now + STEP_PATIENCE + 1)
    assert moves(late, mind) == [Conclude(LOSS)]


def test_who_asks_to_stop_at_once_waits_for_no_checkpoint():
    mind, seen = Mind(), everybody("broken broken broken", verdict=LOSS)
    moves(seen, mind)
    stopped = with_facts(seen, "desk", stopping=Stop("desk", now=True))
    assert end(moves(stopped, mind)).outcome.state == "stopped"
