"""Quorum logic: from members' messages, decide whether to start or how a launch ended.

Pure: the caller passes the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hearth.diagnose import first_failure, is_echo
from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.messages import Ended

SETTLE = 10.0
"""Seconds in which the remaining nodes end their ranks and rejoin after a loss, and in which a
machine that only lost its connection can rejoin, before the others go on without it."""


@dataclass
class _Member:
    heard: float
    connected: bool = True
    ended: Ended | None = None


@dataclass(frozen=True)
class _Failure:
    node: str
    rank: int | None
    message: str
    killed: bool
    at: float


@dataclass
class Council:
    """Tracks the members in one launch and decides, once, its outcome.

    Priority of causes: a rank's own error; a lost node; and, if neither shows up within the time
    that detecting a silent node takes, an error that only echoes an unseen failure elsewhere.

    Args:
        nodes: all nodes of the run, in rank order; the first one hosts the rendezvous.
        patience: timeout in seconds for missing nodes.
        least: minimum number of nodes with which the launch may begin.
        again: whether a loss ends only the launch, not the run.
        lost: cause for which the previous launch ended.
        unhurried: outcome text of a run that was asked to stop and had the time for it.
    """

    nodes: tuple[str, ...]
    patience: float
    silence_timeout: float
    now: float
    least: int
    again: bool = False
    lost: Cause | None = None
    unhurried: str = "stopped after its step"
    team: tuple[str, ...] = ()
    verdict: LaunchOutcome | None = None
    _begun: float = field(init=False)
    _members: dict[str, _Member] = field(init=False, default_factory=dict)
    _failures: list[_Failure] = field(init=False, default_factory=list)
    _stop_by: str | None = field(init=False, default=None)
    _paused_for: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        self._begun = self.now

    @property
    def started(self) -> bool:
        """Whether `team` was sent Go."""
        return bool(self.team)

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes that are not connected, in rank order."""
        return tuple(n for n in self.nodes if n not in self._members or not self._connected(n))

    @property
    def back(self) -> tuple[str, ...]:
        """The connected nodes that are not part of the started launch."""
        if not self.started:
            return ()
        return tuple(n for n in self._members if n not in self.team and self._connected(n))

    @property
    def paused(self) -> bool:
        """Whether the team was asked to pause for returned nodes."""
        return bool(self._paused_for)

    def _connected(self, node: str) -> bool:
        return self._members[node].connected

    def join(self, node: str, now: float) -> str | None:
        """Add a ready member; return the reason if it must retry later, else None.

        If the node is already a member, its connection broke before the hub noticed: a lock ensures
        that each node has only one supervisor.
        """
        if self.verdict is not None:
            return "the run has ended"
        if self.started and node in self.team:
            self.gone(node)
            return "the launch that it was part of ends first"
        self._members[node] = _Member(now)
        return None

    def in_queue(self, now: float) -> None:
        """Note that a member waits for its turn on its node: the timeout counts from now."""
        self._begun = now

    def ready(self, now: float) -> tuple[str, ...]:
        """Return the nodes with which the launch may begin now, in rank order; else ()."""
        there = tuple(node for node in self.nodes if node not in self.missing)
        enough = len(there) >= self.least and now - self._begun >= SETTLE
        hub_is_there = self.nodes[0] in there
        return there if not self.missing or (enough and hub_is_there) else ()

    def start(self, team: tuple[str, ...]) -> None:
        """Note that `team` was sent Go."""
        self.team = team

    def pause(self) -> None:
        """Note that the team was asked to pause for returned nodes, even if they leave again."""
        self._paused_for = self.back

    def heard(self, node: str, now: float) -> None:
        """Note a sign of life from a member."""
        self._members[node].heard = now

    def gone(self, node: str) -> None:
        """Note that a member's connection broke."""
        self._members[node].connected = False

    def ended(self, node: str, report: Ended, now: float) -> None:
        """Note that a member's torchrun ended."""
        self._members[node].ended = report
        if report.exit_code != 0:
            self._failures.append(_Failure(node, report.rank, report.message, report.killed, now))

    def stop(self, node: str, at_once: bool, why: str = "") -> None:
        """Note that `node` was asked to stop the run. Before the start, the run ends at once.

        `why` is the reason if no user asked.
        """
        self._stop_by = self._stop_by or node
        if self.verdict is None and (at_once or not self.started):
            how = "stopped at once" if self.started else "stopped waiting"
            self.verdict = self._stopped(how, why)

    def slept(self, seconds: float) -> None:
        """Note that the hub's machine or process was suspended for longer than allowed."""
        hub = self.nodes[0]
        if self.verdict is None and self.started:
            words = f"{hub} itself was suspended or stopped for {seconds:.0f} s"
            self.verdict = self._lost(hub, words)

    def decide(self, now: float) -> LaunchOutcome | None:
        """Return the launch's outcome, or None while it goes on. A decision is final."""
        if self.verdict is None:
            self.verdict = self._running(now) if self.started else self._waiting(now)
        return self.verdict

    def _waiting(self, now: float) -> LaunchOutcome | None:
        if now - self._begun <= self.patience or not self.missing:
            return None
        names = ", ".join(self.missing)
        if self.lost is None:
            message = f"{names} did not get ready within {self.patience:g} s"
            return LaunchOutcome("failed", Cause(self.missing[0], None, "not_ready", message))
        message = f"{self.lost.message}; {names} did not come back within {self.patience:g} s"
        return LaunchOutcome("failed", Cause(self.missing[0], None, "node_lost", message))

    def _running(self, now: float) -> LaunchOutcome | None:
        first = first_failure(self._failures)
        if first and not is_echo(first.message):
            return self._failed(first, curable=first.killed)
        busy = {node: m for node in self.team if (m := self._members[node]).ended is None}
        for node, member in busy.items():
            if not member.connected:
                return self._lost(
                    node,
                    f"the supervisor of {node} broke off: it was killed or the machine went down",
                )
        for node, member in busy.items():
            if now - member.heard > self.silence_timeout:
                return self._lost(
                    node,
                    f"{node} was silent for {now - member.heard:.0f} s: it hangs, "
                    "sleeps, or its network is cut",
                )
        if first:
            patience = self.silence_timeout + 2
            if busy and now - first.at <= patience:
                return None
            return self._failed(first, curable=True)
        if busy:
            return None
        if self._stop_by:
            return self._stopped(self.unhurried)
        if self.back:
            return self._taken_in(self.back, "is back")
        if self.paused:
            # A pause and the end of training look alike here; after the end, a relaunch is brief.
            return self._taken_in(self._paused_for, "was back, and left again")
        return LaunchOutcome("finished")

    def _taken_in(self, nodes: tuple[str, ...], what: str) -> LaunchOutcome:
        """Return the verdict that relaunches the run to include `nodes`."""
        cause = Cause(nodes[0], None, "node_back", f"{', '.join(nodes)} {what}")
        return LaunchOutcome("again", cause)

    def _lost(self, node: str, message: str) -> LaunchOutcome:
        return self._over(Cause(node, None, "node_lost", message), curable=True)

    def _failed(self, first: _Failure, curable: bool) -> LaunchOutcome:
        cause = Cause(first.node, first.rank, "rank_failed", first.message)
        return self._over(cause, curable)

    def _over(self, cause: Cause, curable: bool) -> LaunchOutcome:
        """Return the verdict after a failure: relaunch if `curable` and allowed, else fail."""
        again = self.again and curable and self._stop_by is None
        return LaunchOutcome("again" if again else "failed", cause)

    def _stopped(self, how: str, why: str = "") -> LaunchOutcome:
        node = self._stop_by or self.nodes[0]
        message = f"{how}: {why}" if why else f"{how}, as asked on {node}"
        return LaunchOutcome("stopped", Cause(node, None, "stopped", message))
