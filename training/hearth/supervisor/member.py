"""The supervisor of one node of a run: it keeps the node's ranks in a team.

It joins the mesh, starts its own ranks, and follows the decisions: what it hears of peers and ranks
changes its state, every change goes to the peers as a report, and the moves decided on are carried
out. All events arrive in one queue and are handled one at a time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import LaunchError
from hearth.notify.event import RETURN, Limit
from hearth.ranks.orders import Alive, Doing, Form, Formed, News
from hearth.supervisor.availability import FIRST_WORD, Availability, OwnerSays, asking
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.channel import Left, Said
from hearth.supervisor.checkpoint_transfer import CheckpointTransfer
from hearth.supervisor.decisions import causes
from hearth.supervisor.decisions.decide import answer, next_moves
from hearth.supervisor.decisions.notes import Notes, loss
from hearth.supervisor.decisions.view import (
    Absence,
    Conclude,
    Depart,
    DropProposal,
    Heard,
    Move,
    ProposeTeam,
    RestartRanks,
    RestRanks,
    SayWaiting,
    Settings,
    StartTeam,
    TellRanks,
    View,
)
from hearth.supervisor.decisions.voting import Attempt, Config, Refusal
from hearth.supervisor.handshake import group_key
from hearth.supervisor.keeper import NotStarted, RanksExited, RanksKeeper
from hearth.supervisor.life import POLL, STOP, Interrupted, StopAsked
from hearth.supervisor.mesh import Gone, InQueue, Joined, Mesh
from hearth.supervisor.mesh import Heard as PeerSaid
from hearth.supervisor.messages import (
    TEAMED,
    WAITING,
    Ask,
    Failure,
    FormTeam,
    Given,
    Message,
    Propose,
    Report,
    Stop,
    Verdict,
    Vote,
)
from hearth.supervisor.rendezvous import meeting_place
from hearth.supervisor.spec import Spec
from hearth.supervisor.teams import Teams
from hearth.supervisor.vote_store import VoteStore
from hearth.supervisor.wish import Wish

MEETING = 2.0
"""Seconds in which a supervisor that comes back meets those that are there."""

MOST_ROUNDS = 8
"""Rounds of moves after one event; the next event goes on with the rest."""


_NO_NEWS = (Doing, Alive, Ask, Given)


@dataclass(frozen=True)
class _Tick:
    """Time has passed."""


class Member(RanksKeeper):
    """The supervisor of one node of a run whose ranks are resident: they form new groups.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.
    """

    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        super().__init__(spec, unit, last)
        self._vote_store = VoteStore(spec, self._say)
        self._mesh = Mesh(
            spec,
            self._events,
            self._say,
            self._spawn,
            self._has_begun,
            lambda: self._vote_store.stuck,
        )
        self._settings = Settings(
            spec.nodes,
            max(1, spec.generation),
            spec.elastic,
            spec.min_nodes,
            spec.ready_timeout,
            spec.return_timeout,
            spec.first_timeout,
            relaunched=not spec.resident,
        )
        self._began = boot_clock()
        self._heard: dict[str, Heard] = {}
        self._gone: dict[str, Absence] = {}
        self._teams = Teams(self._record, spec.record)
        self._transfer = CheckpointTransfer(spec.checkpoints, self._mesh.tell)
        self._notes = Notes()
        self._stop: Stop | None = None
        self._leaving = ""
        self._wish = Wish()
        self._availability: Availability | None = None
        self._told_peers: Report | None = None

    # Life

    async def _open(self) -> None:
        spec = self._spec
        self._vote_store.open(self._last["generation"] if self._last else -1)
        if spec.resident:
            await self._channel.open()
        await self._listen_at(self._mesh.open)
        self._say(
            f"run {spec.run}: {spec.node} is rank {spec.rank} of {len(spec.nodes)}, meeting at "
            f"{spec.address} port {spec.ports[spec.rank]}"
        )

    async def _take_part(self) -> LaunchOutcome | Interrupted:
        self._tasks.add(self._spawn(self._tick()))
        await self._begin()
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, LaunchOutcome):  # of this node alone: the others go on
                    self._apart = True
                    return event
                if end := await self._handle(event):
                    return end
                if isinstance(event, Said | PeerSaid) and isinstance(event.message, _NO_NEWS):
                    continue  # said often, and nothing to decide on
                if end := await self._decide():
                    return end
        finally:
            for task in self._of_launch:
                task.cancel()

    async def _begin(self) -> None:
        """Start the ranks, unless the house wants the machine already."""
        spec = self._spec
        if spec.lend:
            asked = partial(asking, spec.lend, spec.workspace)
            self._availability = Availability(asked, self._events, self._say)
            await self._availability.first(FIRST_WORD)
            self._wish.why = self._availability.says
        if self._wish.why:
            self._say_away()
            self._rest_ranks()
        else:
            self._start_ranks("")

    async def _bring_state(self) -> None:
        """Bring a newer checkpoint than the own of a node that is away, if nobody else trains."""
        if self._last and self._start == 1:
            until = boot_clock() + MEETING
            while len(self._heard) + 1 < len(self._spec.nodes) and boot_clock() < until:
                await asyncio.sleep(POLL)
        known = {node: heard.report for node, heard in self._heard.items()}
        away = [node for node, report in known.items() if report.state == "away"]
        if any(report.trained for report in known.values()):
            return
        if what := await self._transfer.bring(away):
            self._say(what)

    async def _disconnect(self) -> None:
        if self._availability:
            self._availability.close()
        self._channel.close()
        await self._mesh.close()

    def _absent(self) -> set[str]:
        return {*self._spec.nodes} - {*self._heard, self._spec.node}

    def _limit(self) -> Limit:
        limit, spec = super()._limit(), self._spec
        if limit.setting != RETURN or not self._record.launches:
            return limit
        now, there = time.time(), boot_clock()
        refused = {
            node: now - (there - absence.since)
            for node, absence in self._gone.items()
            if absence.why.startswith("refused")
        }
        return dataclasses.replace(limit, answering=spec.ready_timeout, refused=refused)

    def _wanted_elsewhere(self) -> str:
        return self._wish.why or super()._wanted_elsewhere()

    def _ends_afterwards(self, event: Any) -> str:
        if isinstance(event, OwnerSays):
            return f"the house wants this machine: {event.why}" if event.why else ""
        return super()._ends_afterwards(event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            self._events.put_nowait(_Tick())

    def _has_begun(self) -> bool:
        return super()._has_begun() or self._teams.now is not None

    # Events

    async def _handle(self, event: Any) -> LaunchOutcome | Interrupted | None:
        """Take note of an event; return the end of this node's part if it is one."""
        match event:
            case _Tick():
                await self._vote_store.retry()
                await self._end_hanging_ranks()
                self._note_open_step()
            case Said() | Left() | RanksExited() | NotStarted():
                await self._handle_ranks(event)
            case Joined(node):
                self._say(f"{node} is connected")
                self._gone.pop(node, None)
                if self._stop:
                    self._mesh.tell(node, self._stop)
                self._mesh.tell(node, self._report_to_peers())
            case Gone(node, why, taken):
                self._lost(node, why, taken)
            case InQueue(node, why):
                self._queued.hear(node, why)
            case PeerSaid(node, message):
                return await self._hear_peer(node, message)
            case StopAsked(at_once, why) if at_once or not self._stopping:
                self._stop_run(Stop(self._spec.node, at_once, why))
            case Interrupted() if self._record.job:
                return event  # Slurm's signal has ended the ranks already
            case OwnerSays(why):
                self._house_says(why)
            case Interrupted(why) if self._heeds(event) and not self._leaving:
                self._say(f"{why}: leaving the others in order")
                self._leaving = why
        return None

    def _note_open_step(self) -> None:
        """Tell the other nodes what this node's ranks do, and record a step that takes long."""
        self._mesh.beat = self._open_step.beat
        team = self._teams.now.nodes if self._teams.now else ()
        beats = {node: beat for node, beat in self._mesh.beats.items() if node in team}
        node, now = self._spec.node, boot_clock()
        self._record.open_step = self._open_step.record(node, beats, now)

    def _house_says(self, why: str) -> None:
        """Take note of what the house wants, which this node's report then tells."""
        if why == self._wish.why:
            return
        self._wish.why = why
        if not why:
            self._say("the house has let go of this machine")
            self._teams.forget_leave(self._spec.node)
            return
        self._say(f"the house wants this machine: {why}")
        if self._teams.now and self._ranks.state in TEAMED:
            self._teams.breaks(causes.left(self._spec.node, why, returns=True))
        elif self._record.away:
            self._say_away()

    def _say_away(self) -> None:
        """Record why this node has no ranks."""
        self._record.away = self._wish.why
        self._record.write(self._spec.record)

    def _rest(self) -> None:
        """End the ranks, as the house wants the machine."""
        self._teams.end()
        if self._record.state != "waiting":
            self._record.enter("waiting")
        self._say_away()
        self._say("this node's ranks have ended: the house has the machine")
        self._rest_ranks()

    def _hear_rank(self, local_rank: int, message: News) -> None:
        super()._hear_rank(local_rank, message)
        self._note_training(message)

    def _note_training(self, message: News) -> None:
        """Record that this node trains, once the last of its ranks has said so."""
        team = self._teams.now
        if isinstance(message, Formed) and self._ranks.state == "training" and team:
            self._teams.trains()
            self._say(
                f"training from step {message.step} on with {', '.join(team.nodes)} "
                f"(generation {team.generation})"
            )

    def _note_exit(self, status: int) -> None:
        if self._asked() == STOP and not self._stopping:
            # The trainer saw the stop file before this supervisor did.
            self._stop_run(Stop(self._spec.node))
        super()._note_exit(status)

    def _ranks_failed(self, failure: Failure) -> None:
        super()._ranks_failed(failure)
        self._teams.breaks(causes.failed(self._spec.node, failure))

    def _lost(self, node: str, why: str, taken: str) -> None:
        """Take note that a node is not connected."""
        heard = self._heard.pop(node, None)
        self._gone[node] = Absence(why, boot_clock(), taken)
        self._vote_store.lost(node)
        if heard is None or heard.report.ended:
            return
        if leaving := heard.report.leaving:
            cause = causes.left(node, leaving, heard.report.returns)
        else:
            cause = loss(self._view(), node)
        self._say(
            f"{node} {why}; it was {cause.message}" if cause.kind == "away" else cause.message
        )
        if self._teams.has(node):
            self._teams.breaks(cause)

    async def _hear_peer(self, node: str, message: Message) -> LaunchOutcome | None:
        match message:
            case Report() if message.node == node:
                self._heard[node] = Heard(message, boot_clock())
                if failure := message.failure:
                    self._teams.explain(causes.failed(node, failure))
                if self._teams.has(node):
                    if failure:
                        self._teams.breaks(causes.failed(node, failure))
                    if message.leaving:
                        self._teams.breaks(causes.left(node, message.leaving, message.returns))
                    else:
                        self._teams.forget_leave(node)
            case Propose():
                self._mesh.tell(node, await self._vote(node, message))
            case Vote():
                if heard := self._heard.get(node):
                    report = dataclasses.replace(heard.report, votes=message.votes)
                    self._heard[node] = Heard(report, heard.at)
                self._vote_store.count(node, message)
            case Ask():
                self._mesh.tell(node, await asyncio.to_thread(self._transfer.give, message))
            case Given():
                self._transfer.given(node, message)
            case FormTeam():
                await self._form(message)
            case Stop():
                self._stop_run(message)
            case Verdict():
                self._mesh.tell_all(message)
                return message.outcome
        return None

    def _stop_run(self, stop: Stop) -> None:
        """Stop the run, and pass the request on."""
        if self._stop and (self._stop.now or not stop.now):
            return
        self._stop, self._stopping = stop, True
        if stop.node != self._spec.node:
            self._say(f"asked to stop {'at once ' if stop.now else ''}on {stop.node}")
        else:
            self._say(stop.why or f"asked to stop {'at once' if stop.now else 'after the step'}")
        if not stop.now:
            # Each trainer polls only its own node's file: write it, whichever node was asked.
            with suppress(OSError):
                self._spec.stop_file.write_text(STOP)
        self._mesh.tell_all(stop)

    # Teams

    async def _vote(self, proposer: str, proposal: Propose) -> Vote:
        """Answer a proposal: yes only with the promise on the disk."""
        generation = proposal.attempt.config.generation
        promised = answer(self._view(), self._notes, proposal, proposer)
        if isinstance(promised, Refusal):
            return Vote(generation, False, self._vote_store.votes, promised.reason)
        saved = await self._vote_store.save(promised)
        return Vote(generation, saved, self._vote_store.votes, self._vote_store.voteless)

    async def _form(self, order: FormTeam) -> None:
        """Commit to a team and tell the ranks to form its group."""
        if self._yields:
            return  # back in the queue, this node learns that the run has begun, and goes first
        config = Config(order.generation, order.nodes)
        if not await self._vote_store.commit(config):
            return
        self._teams.follow(config)
        self._say(f"forming a group of {', '.join(config.nodes)} (generation {config.generation})")
        if self._ranks.state in ({"ready"} if order.fresh else WAITING):
            key = group_key(self._spec.token, order.generation)
            self._tell_ranks(Form(*dataclasses.astuple(order), key))

    # Moves

    def _report_to_peers(self) -> Report:
        ranks = self._ranks
        wish = self._wish.told(ranks.state, ending=self._leave is not None)
        return Report(
            self._spec.node,
            ranks.state,
            self._vote_store.votes,
            self._mesh.connected,
            self._teams.generation,
            ranks.trained,
            ranks.step,
            ranks.choices,
            ranks.why,
            ranks.failure,
            ranks.ended,
            self._leaving or wish,
            bool(wish and not self._leaving),
            tuple(node for node in self._mesh.connected if self._is_leaving(node)),
            self._stop,
            self._vote_store.voteless,
        )

    def _is_leaving(self, node: str) -> bool:
        heard = self._heard.get(node)
        return heard is not None and bool(heard.report.leaving)

    def _tell_peers(self) -> None:
        """Send this node's report to all, if it has changed."""
        report = self._report_to_peers()
        if report != self._told_peers:
            self._told_peers = report
            self._mesh.tell_all(report)

    async def _decide(self) -> LaunchOutcome | Interrupted | None:
        """Carry out moves until there are no more; return the end if it is one."""
        for _ in range(MOST_ROUNDS):
            self._tell_peers()
            moves = next_moves(self._view(), self._notes)
            for move in moves:
                if end := await self._carry_out(move):
                    return end
            if not moves:
                break
        return None

    def _view(self) -> View:
        return View(
            now=boot_clock(),
            began=self._began,
            settings=self._settings,
            own=self._report_to_peers(),
            heard=dict(self._heard),
            gone=dict(self._gone),
            team=self._teams.now,
            proposal=self._vote_store.proposal,
            evaluates=bool(self._evaluating),
            queued=dict(self._queued.heard),
            jitter=random.random(),
        )

    async def _carry_out(self, move: Move) -> LaunchOutcome | Interrupted | None:
        match move:
            case TellRanks(order):
                self._tell_ranks(order)
            case ProposeTeam(attempt, fresh):
                await self._propose(attempt, fresh)
            case DropProposal(why):
                self._say(f"no new team yet: {why}")
                self._vote_store.proposal = None
            case StartTeam(config, fresh):
                await self._start_team(config, fresh)
            case RestartRanks(why):
                self._record.away = ""
                self._start_ranks(why)
            case RestRanks():
                self._rest()
            case SayWaiting():
                self._say_waiting(move)
            case Conclude(outcome, everywhere):
                self._apart = not everywhere
                return self._end(outcome, everywhere)
            case Depart(why):
                return Interrupted(why)
        return None

    async def _propose(self, attempt: Attempt, fresh: bool) -> None:
        """Promise a team and ask its other voters to."""
        if await self._vote_store.propose(attempt, fresh):
            for node in attempt.voters:
                self._mesh.tell(node, Propose(attempt, fresh))

    async def _start_team(self, config: Config, fresh: bool) -> None:
        """Send the order to form a team whose voters have all promised."""
        if not self._vote_store.close():
            return
        spec = self._spec
        try:
            address, port, clients = meeting_place(spec, config.nodes, self._mesh.source)
        except (LaunchError, OSError) as error:
            self._say(f"no new team yet: {error}")
            return
        left = {
            node: causes.left(node, report.leaving, report.returns).message
            for node, report in self._view().reports.items()
            if report.leaving
        }
        order = FormTeam(config.generation, config.nodes, address, port, clients, fresh, left)
        for node in config.nodes:
            self._mesh.tell(node, order)
        if spec.node in config.nodes:
            await self._form(order)

    def _say_waiting(self, waits: SayWaiting) -> None:
        """Record for whom this node waits."""
        self._record.missing = list(waits.missing)
        if waits.missing:
            if self._ranks.state not in TEAMED:
                self._teams.end()
            if self._record.state != "waiting":
                self._record.enter("waiting")
            self._say(f"waiting for {', '.join(waits.missing)}" + (waits.why and f": {waits.why}"))
        if waits.wanted:
            self._record.cause = causes.held_up(waits.wanted)
        elif self._record.cause and self._record.cause.kind == "away":
            self._record.cause = None
        self._record.write(self._spec.record)

    def _end(self, outcome: LaunchOutcome, everywhere: bool) -> LaunchOutcome:
        """Return the outcome of the run, once the others are told."""
        cause = outcome.cause
        if cause and cause.kind == "not_ready" and (why := self._mesh.why_absent(cause.node)):
            message = f"{cause.message} ({why})"
            outcome = LaunchOutcome(outcome.state, dataclasses.replace(cause, message=message))
        if everywhere and outcome.state in ("finished", "failed", "stopped"):
            self._mesh.tell_all(Verdict(outcome.state, outcome.cause))
        return outcome
