"""The part of one node in a run: it keeps the node's ranks in a team.

It joins the mesh, starts its own ranks, and puts all that it hears of peers, ranks, owner and user
into `decisions.transition`, one event at a time; what that asks for is carried out here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import LaunchError
from hearth.base.interface import free_port, random_port, source_towards
from hearth.notify.event import READY, RETURN, Limit
from hearth.ranks.control_protocol import Form
from hearth.supervisor.availability import FIRST_WORD, Availability, asking
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.channel import Left, Said
from hearth.supervisor.checkpoint_transfer import CheckpointTransfer
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions import actions, events
from hearth.supervisor.decisions.decide import to_prove
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.state import State
from hearth.supervisor.decisions.transition import transition
from hearth.supervisor.launches import NotStarted, RankLaunches, RanksExited
from hearth.supervisor.mesh import Mesh
from hearth.supervisor.messages import file_key, group_key
from hearth.supervisor.ranks import RanksKeeper
from hearth.supervisor.reach import Proved, Reach
from hearth.supervisor.recording import put_on_record
from hearth.supervisor.relaunched import RelaunchedRanks
from hearth.supervisor.requests import POLL, RETRY, Interrupted, StopRequests
from hearth.supervisor.resident import ResidentRanks
from hearth.supervisor.spec import Spec
from hearth.supervisor.vote_store import VoteStore

MEETING = 2.0
"""Seconds that a returning supervisor has to meet those that are there."""

End = LaunchOutcome | Interrupted


class Member:
    """A node's part in a run, from its first connection to the end.

    `on_disk` is as in `RanksKeeper`; `last` is the record of a supervisor that went down in the
    middle of the run.

    Attributes:
        apart: whether only this node's part has ended, and the others go on.
    """

    def __init__(
        self,
        context: SupervisorContext,
        requests: StopRequests,
        launches: RankLaunches,
        on_disk: Callable[[str], None],
        last: dict[str, Any] | None,
    ) -> None:
        spec = context.spec
        self._context, self._spec, self._record = context, spec, context.record
        self._requests, self._launches, self._last = requests, launches, last
        self.apart = False
        self._vote_store = VoteStore(spec, context.say)
        self._mesh = Mesh(
            spec, context.events, context.say, context.spawn, lambda: self._vote_store.stuck
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
        addresses = dict(zip(spec.nodes, spec.addresses, strict=True))
        self._reach = Reach(file_key(spec.token), addresses, context.events, context.spawn)
        self._ranks: ResidentRanks | RelaunchedRanks
        if spec.resident:
            self._ranks = ResidentRanks(
                context, requests, launches, lambda: self._state.ranks, self._bring_state
            )
        else:
            self._ranks = RelaunchedRanks(
                context, requests, launches, lambda: self._state.own.generation
            )
        self._keeper = RanksKeeper(context, launches, self._ranks, on_disk)
        self._availability: Availability | None = None
        self._absent_at_verdict: set[str] | None = None

    # Life

    async def open(self) -> None:
        """Start listening, and log this node's part in the run.

        Raises:
            LaunchError: the port is taken, or its disk takes no socket.
        """
        spec = self._spec
        votes = self._vote_store.read(self._last["generation"] if self._last else -1)
        self._state = replace(self._state, votes=votes)
        if not spec.scripted:
            await self._launches.channel.open()
        # Another program may have taken the port since the launch.
        later = self._last or spec.queue
        await listen_at(self._mesh.open, spec.patience if later else 0)
        self._transfer.open()
        self._state = replace(self._state, serves=self._transfer.port)
        self._context.say(
            f"run {spec.run}: {spec.node} is rank {spec.rank} of {len(spec.nodes)}, meeting at "
            f"{spec.address} port {spec.ports[spec.rank]}"
        )

    async def take_part(self) -> End:
        """Take part in the run to its end, or until this supervisor is interrupted."""
        self._context.beside(self._tick())
        await self._begin()
        try:
            while True:
                event = await self._context.events.get()
                if isinstance(event, LaunchOutcome):  # of this node alone: the others go on
                    self.apart = True
                    return event
                if isinstance(event, Interrupted) and self._record.job:
                    return event  # Slurm's signal has ended the ranks already
                for news in await self._news_of(event):
                    if end := await self._happen(news):
                        return end
        finally:
            self._launches.cancel()

    async def _begin(self) -> None:
        """Start the ranks, unless the owner wants the machine already."""
        context, spec = self._context, self._spec
        if spec.lend:
            asked = partial(asking, spec.lend, spec.workspace)
            self._availability = Availability(asked, context.events, context.say)
            await self._availability.first(FIRST_WORD)
            if why := self._availability.says:
                ranks = self._state.ranks.resting()
                self._state = replace(self._state, owner=why, ranks=ranks)
                put_on_record(context, actions.RecordAway(why))
                self._keeper.rest()
                return
        self._keeper.start("")

    async def _bring_state(self) -> None:
        """Bring a newer checkpoint than the own of a node that is away, if no other node trains."""
        if self._last and self._launches.start == 1:
            until = boot_clock() + MEETING
            while len(self._state.heard) + 1 < len(self._spec.nodes) and boot_clock() < until:
                await asyncio.sleep(POLL)
        known = {node: heard.report for node, heard in self._state.heard.items()}
        if any(report.trained for report in known.values()):
            return
        held = {node: report for node, report in known.items() if report.state == "away"}
        if what := await self._transfer.bring(held):
            self._context.say(what)

    async def close(self) -> None:
        """Close the connections to the others, with the outcome recorded."""
        if self._availability:
            self._availability.close()
        self._launches.channel.close()
        self._reach.close()
        await self._transfer.close()
        await self._mesh.close()

    @property
    def absent(self) -> set[str]:
        """The nodes of the run that are not there now, as far as this one knows."""
        if self._absent_at_verdict is not None:
            return self._absent_at_verdict  # who has ended since has told a person
        return {*self._state.missing}

    @property
    def in_queue(self) -> set[str]:
        """The nodes that keep the run waiting for its turn now."""
        return {*self._state.queued}

    @property
    def limit(self) -> Limit:
        """The timeout for the other nodes with the setting that it has."""
        spec, patience = self._spec, self._context.patience
        if patience == spec.ready_timeout:
            return Limit(patience, READY)
        if not self._record.launches:
            return Limit(patience, RETURN)
        now, there = time.time(), boot_clock()
        refused = {
            node: now - (there - absence.since)
            for node, absence in self._state.gone.items()
            if absence.why.startswith("refused")
        }
        return Limit(patience, RETURN, answering=spec.ready_timeout, refused=refused)

    def wanted_elsewhere(self) -> str:
        """Return why what follows the training is to end now, "" if it may go on."""
        if self._state.owner:
            return self._state.owner
        while not self._context.events.empty():
            match self._context.events.get_nowait():
                case events.StopAsked(stop):
                    return stop.why or "asked to stop"
                case Interrupted(why):
                    return why
                case events.OwnerSays(why) if why:
                    return f"the owner wants this machine: {why}"
        return ""

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            self._context.events.put_nowait(events.Tick())

    def has_begun(self) -> bool:
        """Return whether this node's ranks train, have trained, or are about to."""
        recorded = self._record.state != "waiting" or bool(self._record.launches)
        return recorded or self._state.team is not None

    # Events

    async def _news_of(self, event: Any) -> list[events.Event]:
        """Return the events of decisions in an event of any kind."""
        match event:
            case Said() | Left() | RanksExited() | NotStarted():
                return await self._keeper.news(event)
            case events.Tick():
                self._note_open_step()
                return [*self._keeper.hanging(), *self._own_news(), event]
            case Proved():
                return self._own_news()
            case events.Joined(node):
                self._reach.forget(node)
                with suppress(ConnectionError):  # it is lost again by now
                    self._transfer.admit(self._mesh.source(node))
                return [event]
            case events.PeerSaid(_, Form()) if self._requests.yields:
                pass  # back in the queue, this node learns that the run has begun, and goes first
            case Interrupted(why):
                return [events.Leaves(why)] if self._requests.heeds(event, self.has_begun()) else []
            case _:
                return [event]
        return []

    def _own_news(self) -> list[events.Event]:
        """Return the events of this node's checkpoint, and of its connections, if they changed."""
        state, reach = self._state, self._reach
        news: list[events.Event] = []
        found = events.Reaches(reach.reached, reach.joining, reach.unreached)
        if found != state.reaches:
            news.append(found)
        if state.ranks.away and (newest := self._transfer.newest()) != state.checkpoint:
            news.append(events.Holds(newest))
        return news

    async def _happen(self, event: events.Event) -> End | None:
        """Let an event happen, and all that follows; return the end of this node's part in it."""
        following = [event]
        while following:
            absent = self.absent
            self._state, moves = transition(self._state, following.pop(0), boot_clock())
            if self._state.verdict:
                self._absent_at_verdict = absent
            for action in moves:
                found = await self._carry_out(action)
                if isinstance(found, LaunchOutcome | Interrupted):
                    return found
                if found:
                    following.append(found)
        nodes, joining = to_prove(self._state)
        serves = {node: self._state.heard[node].report.serves for node in nodes}
        self._reach.prove(serves, joining)
        return None

    def _note_open_step(self) -> None:
        """Tell the other nodes what this node's ranks do, and record a step that takes long."""
        watch, team = self._launches.watch, self._state.team.nodes if self._state.team else ()
        self._mesh.beat = watch.beat
        beats = {node: beat for node, beat in self._mesh.beats.items() if node in team}
        self._record.open_step = watch.old_step(beats, boot_clock())

    # Actions

    async def _carry_out(self, action: actions.Action) -> End | events.Event | None:
        """Carry out an action; return the event that follows, or the end of this node's part."""
        match action:
            case actions.Say(words):
                self._context.say(words)
            case actions.Tell(message, node):
                self._mesh.tell(node, message) if node else self._mesh.tell_all(message)
            case actions.TellRanks(Form(generation) as order):
                key = group_key(self._spec.token, generation)
                self._ranks.obey(replace(order, key=key))
            case actions.TellRanks(order):
                self._ranks.obey(order)
            case actions.StopRanks(stop):
                self._requests.stop_ranks(stop.now)
                if self._spec.scripted and not stop.now:
                    self._end_script()
            case actions.RestartRanks(why):
                self._record.away = ""
                self._keeper.start(why)
            case actions.RestRanks():
                self._context.say("this node's ranks have ended: the owner has the machine")
                self._keeper.rest()
            case actions.SaveVotes(votes):
                return events.Saved(action, await self._vote_store.save(votes))
            case actions.StartTeam():
                return self._start_team(action)
            case actions.SendVerdict(outcome):
                self._context.say("the run ends: this node's ranks write a checkpoint first")
                self._end(outcome, everywhere=True)
            case actions.Conclude(outcome, everywhere, heard):
                self.apart = not everywhere
                return outcome if heard else self._end(outcome, everywhere)
            case actions.Depart(why):
                return Interrupted(why)
            case _:
                put_on_record(self._context, action)
        return None

    def _end_script(self) -> None:
        """Ask a user's script by SIGTERM to end, and end it after its grace."""
        if not self._requests.terminated:
            self._requests.terminated = True
            self._context.beside(self._launches.workers.tell_to_end())
            self._context.beside(self._requests.stop_after_grace())

    def _start_team(self, start: actions.StartTeam) -> events.PeerSaid | None:
        """Send the order to form a team whose voters have all promised; return it if it is ours."""
        spec, config = self._spec, start.config
        try:
            address, port, clients = meeting_place(spec, config.nodes, self._mesh.source)
        except (LaunchError, OSError) as error:
            self._context.say(f"no new team yet: {error}")
            return None
        order = Form(
            config.generation, config.nodes, address, port, clients, start.fresh, {**start.left}
        )
        for node in config.nodes:
            self._mesh.tell(node, order)
        return events.PeerSaid(spec.node, order) if spec.node in config.nodes else None

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


async def listen_at(listen: Callable[[], Awaitable[None]], patience: float) -> None:
    """Call `listen`, again and again for some seconds while another program has the port.

    Raises:
        LaunchError: the port is taken.
    """
    until = time.monotonic() + patience
    while True:
        try:
            return await listen()
        except LaunchError:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(RETRY)
