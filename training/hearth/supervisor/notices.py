"""The messages that a node's supervisor sends to a person: which, when, and whether it is the one.

All nodes have the addresses, and of those that are there the first in rank order sends. After a cut
of the network each part may.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Set
from datetime import datetime
from typing import Any

from hearth.notify.event import READY, Event, Kind, Limit, speaker
from hearth.notify.outbox import Outbox
from hearth.notify.watch import GoesOn, SlowLinkNews, Waits, WaitWatch, slow_links_now
from hearth.plan.slow_links import hop_text
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import Spec


class Notices:
    """The messages of one supervisor. `say` takes lines for the run's log."""

    def __init__(self, spec: Spec, record: RunRecord, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._record = record
        self._outbox = Outbox(spec.notify, say)
        self._waits = WaitWatch()
        self._gaps = WaitWatch()
        self._links = SlowLinkNews()
        self._last: Event | None = None

    def observe(self, absent: Set[str], limit: Limit, in_queue: Set[str] = frozenset()) -> None:
        """Send a message when the run has waited long for nodes, and when it goes on after that.

        Call it every few seconds. `absent` are the nodes that are not there now, `limit` is the
        run's timeout for them, and `in_queue` are absent ones that keep the run waiting for its
        turn, as it was asked to.
        """
        self._outbox.collect()
        spec, record = self._spec, self._record
        # The owner's use of the machines is no news.
        wanted = record.cause is not None and record.cause.kind == "away"
        missing = () if wanted else tuple(n for n in record.missing if n not in in_queue)
        # The others train if this node, which the owner has, waits for no node.
        trains = record.state == "running" or (bool(record.away) and not missing)
        now = time.monotonic()  # a clock that is set, as after a boot, makes no wait long
        self._observe_gaps(now, absent)
        self._observe_links(now, absent)
        change = self._waits.observe(now, trains, missing)
        if change is None:
            return
        since = time.time() - (now - change.since)
        if isinstance(change, GoesOn):
            # A node that has just come back does not know that a message was sent.
            if speaker(spec.nodes, absent | {*change.nodes}) == spec.node:
                back = tuple(node for node in change.nodes if node not in absent)
                self._outbox.send(self._event("back", back, since))
        elif speaker(spec.nodes, absent) == spec.node:
            # Ranks that take long to load, on a node that is there, end nothing.
            ends = _end_of(limit, change.nodes, since) if {*change.nodes} <= absent else {}
            cause = record.cause.message if record.cause else ""
            self._outbox.send(self._event("waiting", change.nodes, since, message=cause, **ends))

    def _observe_gaps(self, now: float, absent: Set[str]) -> None:
        """Send a message when nodes have not reached each other for long."""
        gaps = tuple(self._record.unreached)
        change = self._gaps.observe(now, trains=not gaps, missing=gaps)
        if isinstance(change, Waits) and speaker(self._spec.nodes, absent) == self._spec.node:
            nodes = tuple(n for n in self._spec.nodes if any(f"reach {n} " in gap for gap in gaps))
            since = time.time() - (now - change.since)
            self._outbox.send(self._event("unreached", nodes, since, message="; ".join(gaps)))

    def disk(self, why: str) -> None:
        """Send a message that this node's disk takes no writes; the others do not know it."""
        if why:
            self._outbox.send(self._event("disk", (self._spec.node,), time.time(), message=why))

    def _observe_links(self, now: float, absent: Set[str]) -> None:
        """Send a message when a link became so slow that it holds up the run."""
        if self._record.state != "running":
            return
        slow = self._links.observe(now, slow_links_now(self._spec.results))
        if slow and speaker(self._spec.nodes, absent) == self._spec.node:
            about = tuple(map(hop_text, slow.hops))
            message = f"{slow.text}\n{slow.advised}"
            self._outbox.send(self._event("slow_link", about, time.time(), message=message))

    def conclude(self, verdict: LaunchOutcome, absent: Set[str], apart: bool) -> None:
        """Keep the message on the end of the run for `send_end`, if it is this node's to send.

        `apart` is whether only this node's part has ended, and the others go on.
        """
        cause = verdict.cause
        kind = self._kind_of_end(verdict, apart)
        lost = {cause.node} if cause and cause.kind == "node_lost" else set()
        gone = absent | lost - {self._spec.node}
        if kind is None or (not apart and speaker(self._spec.nodes, gone) != self._spec.node):
            return
        self._last = self._event(
            kind,
            (cause.node,) if cause else (),
            datetime.fromisoformat(self._record.began).timestamp(),
            message=cause.message if cause else "",
            by_rank=bool(cause and cause.kind == "rank_failed"),
        )

    def send_end(self) -> None:
        """Send the message on the end, and wait until all messages have arrived or are given up.

        Call it once the node's lock is free, so that it holds up no other run.
        """
        if self._last:
            self._outbox.send(self._last)
        self._outbox.finish()

    def _kind_of_end(self, verdict: LaunchOutcome, apart: bool) -> Kind | None:
        """Return the kind of message for an end; None for a stop that a person asked for."""
        if verdict.state == "failed":
            return "apart" if apart else "failed"
        if verdict.state == "finished":
            return "finished"
        by_slurm = f"job {self._record.job}" if self._record.job else None
        told = by_slurm and verdict.cause and by_slurm in verdict.cause.message
        return "stopped" if told else None

    def _event(self, kind: Kind, about: tuple[str, ...], began: float, **more: Any) -> Event:
        spec = self._spec
        return Event(
            kind,
            spec.run,
            spec.nodes,
            about,
            began,
            time.time(),
            begun=bool(self._record.launches) or self._record.state == "running",
            script=self._record.script,
            results=str(spec.results),
            log=str(spec.log) if about == (spec.node,) else "",
            hearth=spec.hearth,
            **more,
        )


def _end_of(limit: Limit, nodes: Collection[str], since: float) -> dict[str, Any]:
    """Return the end of a wait for `nodes` and the setting that ends it, as fields of an event."""
    refused = [limit.refused.get(node) for node in nodes]
    if limit.answering and None not in refused:
        return {"ends": max(since, *refused) + limit.answering, "limit": READY}
    ends = {"ends": since + limit.seconds, "limit": limit.setting}
    return ends | {"answering": limit.answering}
