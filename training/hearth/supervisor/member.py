"""The supervisor of one node of a run: it keeps the node's ranks in a team.

It joins the mesh, starts its own ranks, and puts all that it hears of peers, ranks, owner and user
into `decisions.transition`, one event at a time; what that asks for is carried out here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import LaunchError
from hearth.base.interface import free_port, random_port, source_towards
from hearth.notify.event import RETURN, Limit
from hearth.ranks.control_protocol import Form
from hearth.supervisor.availability import FIRST_WORD, Availability, asking
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.checkpoint_transfer import CheckpointTransfer
from hearth.supervisor.decisions.actions import (
    Action,
    Conclude,
    Depart,
    FormGroup,
    RecordAway,
    RecordCause,
    RecordEnd,
    RecordTraining,
    RestartRanks,
    RestRanks,
    SaveVotes,
    Say,
    SayUnreached,
    SayWaiting,
    SendVerdict,
    StartTeam,
    StopRanks,
    Tell,
    TellRanks,
)
from hearth.supervisor.decisions.decide import to_prove
from hearth.supervisor.decisions.events import (
    Event,
    Holds,
    Joined,
    Leaves,
    OwnerSays,
    PeerSaid,
    Reaches,
    Saved,
    StopAsked,
    Tick,
)
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.state import State
from hearth.supervisor.decisions.transition import transition
from hearth.supervisor.life import POLL, STOP, Interrupted
from hearth.supervisor.mesh import Mesh
from hearth.supervisor.messages import Stop, file_key, group_key
from hearth.supervisor.ranks import Left, NotStarted, RanksExited, RanksKeeper, Said
from hearth.supervisor.reach import Proved, Reach
from hearth.supervisor.spec import Spec
from hearth.supervisor.vote_store import VoteStore

MEETING = 2.0
"""Seconds that a returning supervisor has to meet those that are there."""

End = LaunchOutcome | Interrupted


class Member(RanksKeeper):
    """The supervisor of one node of a run whose ranks are resident: they form new groups.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.
    """

    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        super().__init__(spec, unit, last)
        self._vote_store = VoteStore(spec, self._say)
        self._mesh = Mesh(
            spec, self._events, self._say, self._spawn, lambda: self._vote_store.stuck
        )
        settings = TeamSettings(
            spec.nodes,
            # Votes that are older than the record count for nothing; its generation does.
            max(1, spec.generation, last["generation"] + 1 if last else 0),
            spec.elastic,
            spec.min_nodes,
            spec.ready_timeout,
            spec.return_timeout,
            spec.first_timeout,
            relaunched=not spec.resident,
            scripted=spec.scripted,
        )
        ranks = LocalRanks.starting(spec.nproc)
        self._state = State(settings, spec.node, ranks, began=boot_clock())
        self._transfer = CheckpointTransfer(spec)
        self._reach = Reach(
            file_key(spec.token),
            dict(zip(spec.nodes, spec.addresses, strict=True)),
            self._events,
            self._spawn,
        )
        self._availability: Availability | None = None
        self._absent_at_verdict: set[str] | None = None

    @property
    def _ranks(self) -> LocalRanks:
        return self._state.ranks

    # Life

    async def _open(self) -> None:
        spec = self._spec
        votes = self._vote_store.read(self._last["generation"] if self._last else -1)
        self._state = replace(self._state, votes=votes)
        if not spec.scripted:
            await self._channel.open()
        await self._listen_at(self._mesh.open)
        self._transfer.open()
        self._state = replace(self._state, serves=self._transfer.port)
        self._say(
            f"run {spec.run}: {spec.node} is rank {spec.rank} of {len(spec.nodes)}, meeting at "
            f"{spec.address} port {spec.ports[spec.rank]}"
        )

    async def _take_part(self) -> End:
        self._tasks.add(self._spawn(self._tick()))
        await self._begin()
        try:
            while True:
                event = await self._events.get()
                if isinstance(event, LaunchOutcome):  # of this node alone: the others go on
                    self._apart = True
                    return event
                if isinstance(event, Interrupted) and self._record.job:
                    return event  # Slurm's signal has ended the ranks already
                for news in await self._news_of(event):
                    if end := await self._happen(news):
                        return end
        finally:
            for task in self._of_launch:
                task.cancel()

    async def _begin(self) -> None:
        """Start the ranks, unless the owner wants the machine already."""
        spec = self._spec
        if spec.lend:
            asked = partial(asking, spec.lend, spec.workspace)
            self._availability = Availability(asked, self._events, self._say)
            await self._availability.first(FIRST_WORD)
            if why := self._availability.says:
                ranks = self._ranks.resting()
                self._state = replace(self._state, owner=why, ranks=ranks)
                self._record_away(why)
                self._rest_ranks()
                return
        self._start_ranks("")

    async def _bring_state(self) -> None:
        """Bring a newer checkpoint than the own of a node that is away, if no other node trains."""
        if self._last and self._start == 1:
            until = boot_clock() + MEETING
            while len(self._state.heard) + 1 < len(self._spec.nodes) and boot_clock() < until:
                await asyncio.sleep(POLL)
        known = {node: heard.report for node, heard in self._state.heard.items()}
        if any(report.trained for report in known.values()):
            return
        held = {node: report for node, report in known.items() if report.state == "away"}
        if what := await self._transfer.bring(held):
            self._say(what)

    async def _disconnect(self) -> None:
        if self._availability:
            self._availability.close()
        self._channel.close()
        self._reach.close()
        await self._transfer.close()
        await self._mesh.close()

    def _absent(self) -> set[str]:
        if self._absent_at_verdict is not None:
            return self._absent_at_verdict  # who has ended since has told a person
        return {*self._state.missing}

    def _in_queue(self) -> set[str]:
        return {*self._state.queued}

    def _limit(self) -> Limit:
        limit, spec = super()._limit(), self._spec
        if limit.setting != RETURN or not self._record.launches:
            return limit
        now, there = time.time(), boot_clock()
        refused = {
            node: now - (there - absence.since)
            for node, absence in self._state.gone.items()
            if absence.why.startswith("refused")
        }
        return replace(limit, answering=spec.ready_timeout, refused=refused)

    def _wanted_elsewhere(self) -> str:
        return self._state.owner or super()._wanted_elsewhere()

    def _ends_afterwards(self, event: Any) -> str:
        if isinstance(event, OwnerSays):
            return f"the owner wants this machine: {event.why}" if event.why else ""
        return super()._ends_afterwards(event)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            self._events.put_nowait(Tick())

    def _has_begun(self) -> bool:
        return super()._has_begun() or self._state.team is not None

    # Events

    async def _news_of(self, event: Any) -> list[Event]:
        """Return the events of decisions in an event of any kind."""
        match event:
            case Said() | Left() | RanksExited() | NotStarted():
                return await self._news_of_ranks(event)
            case Tick():
                self._note_open_step()
                return [*self._end_hanging_ranks(), *self._own_news(), event]
            case Proved():
                return self._own_news()
            case Joined(node):
                self._reach.forget(node)
                with suppress(ConnectionError):  # it is lost again by now
                    self._transfer.admit(self._mesh.source(node))
                return [event]
            case PeerSaid(_, Form()) if self._yields:
                pass  # back in the queue, this node learns that the run has begun, and goes first
            case Interrupted(why):
                return [Leaves(why)] if self._heeds(event) else []
            case _:
                return [event]
        return []

    def _own_news(self) -> list[Event]:
        """Return the events of this node's checkpoint, and of its connections, if they changed."""
        state, reach = self._state, self._reach
        news: list[Event] = []
        found = Reaches(reach.reached, reach.joining, reach.unreached)
        if found != state.reaches:
            news.append(found)
        if state.ranks.away and (newest := self._transfer.newest()) != state.checkpoint:
            news.append(Holds(newest))
        return news

    async def _happen(self, event: Event) -> End | None:
        """Let an event happen, and all that follows; return the end of this node's part in it."""
        following = [event]
        while following:
            absent = self._absent()
            self._state, actions = transition(self._state, following.pop(0), boot_clock())
            if self._state.verdict:
                self._absent_at_verdict = absent
            for action in actions:
                found = await self._carry_out(action)
                if isinstance(found, LaunchOutcome | Interrupted):
                    return found
                if found:
                    following.append(found)
        nodes, joining = to_prove(self._state)
        serves = {node: self._state.heard[node].report.serves for node in nodes}
        self._reach.prove(serves, joining)
        return None

    def _note_exit(self, status: int) -> list[Event]:
        unheard = self._requested_stop() == STOP and not self._stopping
        noted = super()._note_exit(status)
        if not unheard:
            return noted
        self._stopping = True  # The trainer saw the stop file before this supervisor did.
        return [*noted, StopAsked(Stop(self._spec.node))]

    def _note_open_step(self) -> None:
        """Tell the other nodes what this node's ranks do, and record a step that takes long."""
        self._mesh.beat = self._open_step.beat
        team = self._state.team.nodes if self._state.team else ()
        beats = {node: beat for node, beat in self._mesh.beats.items() if node in team}
        self._record.open_step = self._open_step.record(self._spec.node, beats, boot_clock())

    # Actions

    async def _carry_out(self, action: Action) -> End | Event | None:
        """Carry out an action; return the event that follows, or the end of this node's part."""
        match action:
            case Say(words):
                self._say(words)
            case Tell(message, node):
                self._mesh.tell(node, message) if node else self._mesh.tell_all(message)
            case TellRanks(order):
                self._tell_ranks(order)
            case FormGroup(order):
                key = group_key(self._spec.token, order.generation)
                self._tell_ranks(replace(order, key=key))
            case StopRanks(stop):
                self._stop_ranks(stop)
            case RestartRanks(why):
                self._record.away = ""
                self._start_ranks(why)
            case RestRanks():
                self._say("this node's ranks have ended: the owner has the machine")
                self._rest_ranks()
            case SaveVotes(votes):
                return Saved(action, await self._vote_store.save(votes))
            case StartTeam():
                return self._start_team(action)
            case SendVerdict(outcome):
                self._say("the run ends: this node's ranks write a checkpoint first")
                self._end(outcome, everywhere=True)
            case Conclude(outcome, everywhere, heard):
                self._apart = not everywhere
                return outcome if heard else self._end(outcome, everywhere)
            case Depart(why):
                return Interrupted(why)
            case _:
                self._put_on_record(action)
        return None

    def _put_on_record(self, action: Action) -> None:
        record = self._record
        match action:
            case RecordTraining(config):
                record.generation = config.generation
                record.cause = None
                record.missing = []
                record.enter("running")
            case RecordEnd(cause):
                record.launch_ended(cause)
            case RecordCause(cause):
                record.launches[-1] = replace(record.launches[-1], cause=cause)
            case RecordAway(why):
                return self._record_away(why)
            case SayWaiting():
                self._record_waiting(action)
            case SayUnreached(gaps):
                self._record_unreached(gaps)
        record.write(self._spec.record)
        return None

    def _record_away(self, why: str) -> None:
        """Record why this node has no ranks."""
        if self._record.state != "waiting":
            self._record.enter("waiting")
        self._record.away = why
        self._record.write(self._spec.record)

    def _record_waiting(self, waits: SayWaiting) -> None:
        """Record the nodes that this one waits for."""
        self._record.missing = list(waits.missing)
        if waits.missing:
            if self._record.state != "waiting":
                self._record.enter("waiting")
            self._say(f"waiting for {', '.join(waits.missing)}" + (waits.why and f": {waits.why}"))
        if waits.wanted:
            self._record.cause = Cause.held_up(waits.wanted)
        elif self._record.cause and self._record.cause.kind == "away":
            self._record.cause = None

    def _record_unreached(self, gaps: tuple[str, ...]) -> None:
        """Record which nodes do not reach each other."""
        known, self._record.unreached = self._record.unreached, list(gaps)
        for gap in gaps:
            if gap not in known:
                self._say(f"{gap}; trying again")
        if known and not gaps:
            self._say("all nodes reach each other again")

    def _stop_ranks(self, stop: Stop) -> None:
        """Stop this node's ranks after their step, unless the run ends at once."""
        self._stopping = True
        if not stop.now:
            # Each trainer polls only its own node's file: write it, whichever node was asked.
            with suppress(OSError):
                self._spec.stop_file.write_text(STOP)

    def _start_team(self, start: StartTeam) -> PeerSaid | None:
        """Send the order to form a team whose voters have all promised; return it if it is ours."""
        spec, config = self._spec, start.config
        try:
            address, port, clients = meeting_place(spec, config.nodes, self._mesh.source)
        except (LaunchError, OSError) as error:
            self._say(f"no new team yet: {error}")
            return None
        order = Form(
            config.generation, config.nodes, address, port, clients, start.fresh, {**start.left}
        )
        for node in config.nodes:
            self._mesh.tell(node, order)
        return PeerSaid(spec.node, order) if spec.node in config.nodes else None

    def _end(self, outcome: LaunchOutcome, everywhere: bool) -> LaunchOutcome:
        """Return the outcome of the run, once the others are told."""
        cause = outcome.cause
        if cause and cause.kind == "not_ready" and (why := self._mesh.why_absent(cause.node)):
            message = f"{cause.message} ({why})"
            outcome = replace(outcome, cause=replace(cause, message=message))
        if everywhere:
            self._mesh.tell_all(outcome)
        return outcome


LOOPBACK = "127.0.0.1"


def meeting_place(
    spec: Spec, nodes: tuple[str, ...], source: Callable[[str], str]
) -> tuple[str, int, tuple[str, ...]]:
    """Return the address and port where the ranks of a team meet, and who may connect to it.

    `source` returns the source address of a connected node's programs.

    Raises:
        LaunchError: this node has no such address now.
        OSError: it does not reach the address, or has lost a node just now.
    """
    first = nodes[0]
    if nodes == (spec.node,):  # whose network, and address, may be what was lost
        return LOOPBACK, free_port(LOOPBACK), (LOOPBACK,)
    address = spec.addresses[spec.nodes.index(first)]
    port = free_port(address) if first == spec.node else random_port()
    clients = {source_towards(address)}
    for node in nodes:
        clients.add(spec.addresses[spec.nodes.index(node)])
        if node != spec.node:
            clients.add(source(node))
    return address, port, tuple(sorted(clients))
