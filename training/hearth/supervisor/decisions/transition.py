"""Events and their effects: the state of a node after each, and its actions.

`transition` is the whole of a node's part in a run, as a pure function. An event first changes what
the node knows:

| event | when | the node |
|---|---|---|
| Tick | four times a second | looks at the clock, and tries a full disk again |
| Joined | a node is connected | tells it how things stand here |
| Gone | a node is lost, or left | notes why, and forgets a proposal that needs its vote |
| PeerSaid | a node sent a message | notes its report; votes; counts its vote; forms a team; stops |
| RankSaid | an own rank waits, trains or has ended | notes it, and records the training |
| RankLeft | an own rank died | takes the group for broken |
| RanksFailed | torchrun told why | keeps the error, and starts them again or ends by it |
| Evaluates | the own ranks evaluate, or cease to | waits less long for them if it has to leave |
| Reaches | connections to others were tried | tells whom it reaches, before a team grows |
| Holds | a node without ranks has a checkpoint | tells it, for one that comes back |
| OwnerSays | the owner wants the machine, or lets go | leaves with a checkpoint, or comes back |
| Leaves | the machine shuts down | leaves in order; the run stays open here |
| StopAsked | a user asked to stop, or Slurm did | passes it on, and stops its ranks |
| Saved | the votes are on the disk, or the disk is full | answers, proposes or forms the team |

Then `decide` says what follows, again and again until nothing does: the end, if there is one
(`verdicts.ENDS`), else an order for the own ranks (`own_ranks`), and the next step towards a team
(`forming`, `voting`). The supervisor (`member`) puts events in and carries the actions out; a
simulation does the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hearth.ranks.control_protocol import Form, Formed, LoadAlone
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions import actions, events
from hearth.supervisor.decisions.decide import answer, decide
from hearth.supervisor.decisions.events import Event
from hearth.supervisor.decisions.state import Disconnection, Heard, Proposal, State
from hearth.supervisor.decisions.voting import (
    PROPOSAL_LIFETIME,
    Config,
    Refusal,
    commit,
    needs_no_disk,
    promise,
)
from hearth.supervisor.messages import (
    TEAMED,
    WAITING,
    NodeReport,
    Propose,
    Stop,
    Vote,
)

RETRY = 1.0
"""Seconds between two attempts to write votes to a disk that took none."""

MOST_ROUNDS = 8
"""Rounds of moves after one event; the next event goes on with the rest."""

Result = tuple[State, list[actions.Action]]


def transition(state: State, event: Event, now: float) -> Result:
    """Return the state of a node after an event at the time `now`, and its actions, in order."""
    state, made = HANDLERS[type(event)](replace(state, now=now), event)
    for _ in range(MOST_ROUNDS):
        if made and isinstance(made[-1], actions.LAST):
            break
        state, tells = _tell_peers(state)
        state, moves = decide(state)
        made += tells
        for move in moves:
            state, more = _make(state, move)
            made += more
        if not moves:
            break
    return state, made


def _tell_peers(state: State) -> Result:
    """Send this node's report to all, if it has changed."""
    ending = state.memory.told_leave and not state.ranks.away
    if state.owner or not ending:
        state = replace(state, owner_reported=state.owner)
    if state.own == state.reported:
        return state, []
    return replace(state, reported=state.own), [actions.Tell(state.own)]


# Moves


def _make(state: State, move: actions.Action) -> Result:
    """Return the state once a move is made, and the actions that it takes."""
    match move:
        case actions.TellRanks(LoadAlone() as order):
            return replace(state, ranks=state.ranks.ordered(order)), [move]
        case actions.RestartRanks():
            return replace(state, ranks=state.ranks.restarted()), [move]
        case actions.RestRanks(why):
            teams, ended = state.teams.end()
            resting = replace(state, teams=teams, ranks=state.ranks.resting())
            return resting, [*ended, actions.RecordAway(why), move]
        case actions.DropProposal(why):
            return state, [actions.Say(f"no new team yet: {why}")]
        case actions.ProposeTeam(attempt):
            votes = promise(state.votes, attempt, state.node, state.settings.nodes)
            return state, [] if isinstance(votes, Refusal) else [actions.SaveVotes(votes, move)]
        case actions.SayWaiting(missing) if missing and state.own.state not in TEAMED:
            teams, ended = state.teams.end()
            return replace(state, teams=teams), [*ended, move]
    return state, [move]


# Events


def _tick(state: State, _: events.Tick) -> Result:
    """Decide by the clock; try again to write votes to a disk that took none."""
    if not state.voteless or state.now - state.tried_at <= RETRY:
        return state, []
    return _save(state, actions.SaveVotes(state.votes))


def _joined(state: State, event: events.Joined) -> Result:
    """Tell the node this one's report, and wait for its own."""
    gone = {node: absence for node, absence in state.gone.items() if node != event.node}
    said = actions.Say(f"{event.node} is connected")
    return replace(state, gone=gone), [said, actions.Tell(state.own, event.node)]


def _gone(state: State, event: events.Gone) -> Result:
    """Take the node for lost or away, for a reason; forget a proposal that it votes on."""
    node, last = event.node, state.heard.get(event.node)
    state = replace(state, heard={name: each for name, each in state.heard.items() if name != node})
    if last and last.report.state == "queued":
        return state, []  # its turn has come, perhaps
    state = replace(
        state,
        gone={**state.gone, node: Disconnection(event.why, state.now, event.taken)},
    )
    if state.proposal and node in state.proposal.attempt.voters:
        state = replace(state, proposal=None)
    if last is None or last.report.ended:
        return state, []
    if leaving := last.report.leaving:
        cause = Cause.left(node, leaving, last.report.returns)
    elif failure := last.report.failure:  # its ranks are not started again
        cause = Cause.failed(node, failure)
    else:
        cause = state.loss(node)
    if state.teams.has(node):
        state = replace(state, teams=state.teams.breaks(cause))
    known = f"{node} {event.why}; it was {cause.message}"
    return state, [actions.Say(cause.message if cause.kind == "node_lost" else known)]


def _peer_said(state: State, event: events.PeerSaid) -> Result:
    """Take note of a report; vote on a proposal; count a vote; form a team; stop; end."""
    node, message = event.node, event.message
    match message:
        case NodeReport() if message.node == node:
            return _hear_report(state, message)
        case Propose():
            return _vote(state, node, message)
        case Vote():
            return _count(state, node, message), []
        case Form():
            return _follow_order(state, message)
        case Stop():
            return _stop(state, message)
        case LaunchOutcome() if state.verdict is None:
            end = actions.Conclude(message, heard=True)
            if message.state != "failed":
                return state, [actions.Tell(message), end]
            return replace(state.remember(verdict_at=state.now), verdict=end), [
                actions.Tell(message)
            ]
    return state, []


def _hear_report(state: State, report: NodeReport) -> Result:
    node, failure, found = report.node, report.failure, []
    if report.state == "queued" and state.queued.get(node) != report.why:
        found = [actions.Say(f"{node} {report.why} there")]
    teams = state.teams
    if failure:
        teams, explained = teams.explain(Cause.failed(node, failure))
        found += explained
    if teams.has(node):
        if failure:
            teams = teams.breaks(Cause.failed(node, failure))
        if report.leaving:
            teams = teams.breaks(Cause.left(node, report.leaving, report.returns))
        else:
            teams = teams.forget_leave(node)
    heard = {**state.heard, node: Heard(report, state.now)}
    state = replace(state, teams=teams, heard=heard)
    state, stopped = _stop(state, report.stopping) if report.stopping else (state, [])
    return state, [*found, *stopped]


def _vote(state: State, proposer: str, proposal: Propose) -> Result:
    """Answer a proposal: yes only once the promise is on the disk."""
    state, votes = answer(state, proposal, proposer)
    if isinstance(votes, Refusal):
        generation = proposal.attempt.config.generation
        return state, [actions.Tell(Vote(generation, False, state.votes, votes.reason), proposer)]
    return _save(state, actions.SaveVotes(votes, actions.AnswerProposal(proposer, proposal)))


def _count(state: State, node: str, vote: Vote) -> State:
    """Return the state once a vote is counted, unless it comes too late for the proposal."""
    if known := state.heard.get(node):
        heard = Heard(replace(known.report, votes=vote.votes), known.at)
        state = replace(state, heard={**state.heard, node: heard})
    proposal = state.proposal
    if proposal is None or proposal.attempt.config.generation != vote.generation:
        return state
    if state.now - proposal.since > PROPOSAL_LIFETIME:
        return replace(state, proposal=None)
    if vote.yes:
        return replace(state, proposal=replace(proposal, yes=proposal.yes | {node}))
    refused = {**proposal.refused, node: vote.why}
    return replace(state, proposal=replace(proposal, refused=refused))


def _follow_order(state: State, order: Form) -> Result:
    """Commit to a team whose voters have all promised."""
    votes = commit(state.votes, Config(order.generation, order.nodes))
    if votes is None:
        return state, [actions.Say(f"ignoring an old order to form generation {order.generation}")]
    return _save(state, actions.SaveVotes(votes, order))


def _save(state: State, save: actions.SaveVotes) -> Result:
    return replace(state, tried_at=state.now), [save]


def _saved(state: State, event: events.Saved) -> Result:
    """Answer, propose or form the team that the votes were saved for; a full disk has no vote."""
    votes, purpose = event.save.votes, event.save.purpose
    said: list[actions.Action] = []
    if event.failure and not state.voteless:
        said = [actions.Say(event.failure)]
    # The promise of a team is on the disk before its order comes, and binds this node no less.
    if not event.failure or isinstance(purpose, Form):
        state = replace(state, votes=votes)
    state = replace(state, voteless=event.failure, tried_at=state.now)
    match purpose:
        case actions.AnswerProposal(proposer, proposal):
            attempt, run = proposal.attempt, state.settings.nodes
            yes = not event.failure or needs_no_disk(state.votes, attempt, state.node, run)
            vote = Vote(attempt.config.generation, yes, state.votes, event.failure)
            return state, [*said, actions.Tell(vote, proposer)]
        case actions.ProposeTeam(attempt, fresh) if not event.failure:
            proposal = Proposal(attempt, fresh, state.now, frozenset((state.node,)))
            others = [node for node in attempt.voters if node != state.node]
            asked = [actions.Tell(Propose(attempt, fresh), node) for node in others]
            return replace(state, proposal=proposal), asked
        case Form():
            state, more = _form(state, purpose)
            return state, said + more
    return state, said


def _form(state: State, order: Form) -> Result:
    """Begin a team, and have the ranks form its group if they wait for one."""
    config = Config(order.generation, order.nodes)
    teams, ended = state.teams.follow(config)
    who = ", ".join(config.nodes)
    said = actions.Say(f"forming a group of {who} (generation {config.generation})")
    waits = state.ranks.state in ({"ready"} if order.fresh else WAITING)
    state = replace(state, teams=teams)
    if not waits:
        return state, [*ended, said]
    ranks = state.ranks.ordered(order)
    return replace(state, ranks=ranks), [*ended, said, actions.TellRanks(order)]


def _stop(state: State, stop: Stop) -> Result:
    """Stop the run, and pass the request on; one to stop at once is stronger."""
    if state.stop and (state.stop.now or not stop.now):
        return state, []
    if stop.node != state.node:
        words = f"asked to stop {'at once ' if stop.now else ''}on {stop.node}"
    else:
        words = stop.why or f"asked to stop {'at once' if stop.now else 'after the step'}"
    return replace(state, stop=stop), [
        actions.Say(words),
        actions.StopRanks(stop),
        actions.Tell(stop),
    ]


def _rank_said(state: State, event: events.RankSaid) -> Result:
    """Take note of what a rank does; record the training once the last rank is in the group."""
    state = replace(state, ranks=state.ranks.said(event.local_rank, event.message))
    if not (isinstance(event.message, Formed) and state.ranks.state == "training" and state.team):
        return state, []
    teams, recorded = state.teams.trains()
    said = actions.Say(
        f"training from step {event.message.step} on with {', '.join(state.team.nodes)} "
        f"(generation {state.team.generation})"
    )
    return replace(state, teams=teams), [*recorded, said]


def _rank_left(state: State, event: events.RankLeft) -> Result:
    """Take the group for broken."""
    return replace(state, ranks=state.ranks.left(event.local_rank)), []


def _ranks_failed(state: State, event: events.RanksFailed) -> Result:
    """Start the ranks again, or end the run or this node's part in it, as the error asks for."""
    teams = state.teams.breaks(Cause.failed(state.node, event.failure))
    ranks = replace(state.ranks, failure=event.failure, gained=event.gained)
    return replace(state, ranks=ranks, teams=teams), []


def _evaluates(state: State, event: events.Evaluates) -> Result:
    """Wait less long for the end of the step if the owner wants the machine."""
    return replace(state, evaluates=event.now), []


def _reaches(state: State, event: events.Reaches) -> Result:
    """Tell the others whom this node reaches."""
    return replace(state, reaches=event), []


def _holds(state: State, event: events.Holds) -> Result:
    """Tell the others which checkpoint they can have from here."""
    return replace(state, checkpoint=event.checkpoint), []


def _owner_says(state: State, event: events.OwnerSays) -> Result:
    """Leave the others in order and come back later; or come back, once the owner lets go."""
    if event.why == state.owner:
        return state, []
    state = replace(state, owner=event.why)
    if not event.why:
        teams = state.teams.forget_leave(state.node)
        return replace(state, teams=teams), [actions.Say("the owner has let go of this machine")]
    said: list[actions.Action] = [actions.Say(f"the owner wants this machine: {event.why}")]
    if state.team and state.ranks.state in TEAMED:
        cause = Cause.left(state.node, event.why, returns=True)
        return replace(state, teams=state.teams.breaks(cause)), said
    return state, said + ([actions.RecordAway(event.why)] if state.ranks.away else [])


def _leaves(state: State, event: events.Leaves) -> Result:
    """Leave the others in order, and end; the run stays open on this node."""
    if state.leaving:
        return state, []
    return replace(state, leaving=event.why), [
        actions.Say(f"{event.why}: leaving the others in order")
    ]


def _stop_asked(state: State, event: events.StopAsked) -> Result:
    """Stop the run on all nodes: after the step, or at once."""
    return _stop(state, event.stop)


HANDLERS: dict[type, Callable[[State, Any], Result]] = {
    events.Tick: _tick,
    events.Joined: _joined,
    events.Gone: _gone,
    events.PeerSaid: _peer_said,
    events.RankSaid: _rank_said,
    events.RankLeft: _rank_left,
    events.RanksFailed: _ranks_failed,
    events.Evaluates: _evaluates,
    events.Reaches: _reaches,
    events.Holds: _holds,
    events.OwnerSays: _owner_says,
    events.Leaves: _leaves,
    events.StopAsked: _stop_asked,
    events.Saved: _saved,
}
"""By event, what a node does first; then it decides."""
