"""What the members' signs add up to: all there, or how the run ended. Pure; time is handed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from hearth.diagnose import first_failure, is_echo
from hearth.supervise.cause import Cause, Verdict
from hearth.supervise.messages import Ended


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
    at: float


@dataclass
class Council:
    """Collects what happens to the members of a run and decides, once, how it ended.

    The order of trust: a rank's own error; a node that is gone; and only when neither shows up
    for longer than a silent node takes to be noticed, an echo of something that nobody saw.
    """

    nodes: tuple[str, ...]
    ready_timeout: float
    silence_timeout: float
    now: float
    started: bool = False
    verdict: Verdict | None = None
    _begun: float = field(init=False)
    _members: dict[str, _Member] = field(init=False, default_factory=dict)
    _failures: list[_Failure] = field(init=False, default_factory=list)
    _stop_by: str | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._begun = self.now

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes that are not there, in rank order."""
        return tuple(n for n in self.nodes if n not in self._members or not self._connected(n))

    def _connected(self, node: str) -> bool:
        return self._members[node].connected

    def refusal(self, node: str) -> str | None:
        """Return why `node` may not join now, or None."""
        if self.verdict is not None:
            return "the run has ended"
        if self.started:
            return "the run has started without it"
        if node in self._members and self._connected(node):
            return f"'{node}' is here already"
        return None

    def join(self, node: str, now: float) -> None:
        """A member is ready."""
        self._members[node] = _Member(now)

    def start(self) -> None:
        """All are there and were told to go."""
        self.started = True

    def heard(self, node: str, now: float) -> None:
        """A member gave any sign of life."""
        self._members[node].heard = now

    def gone(self, node: str) -> None:
        """A member's connection broke."""
        self._members[node].connected = False

    def ended(self, node: str, report: Ended, now: float) -> None:
        """A member's torchrun ended."""
        self._members[node].ended = report
        if report.exit_code != 0:
            self._failures.append(_Failure(node, report.rank, report.message, now))

    def stop(self, node: str, at_once: bool) -> None:
        """`node` was asked to stop the run. Before the start that is an end at once."""
        self._stop_by = self._stop_by or node
        if self.verdict is None and (at_once or not self.started):
            self.verdict = self._stopped("stopped at once" if self.started else "stopped waiting")

    def slept(self, seconds: float) -> None:
        """The hub's own machine was suspended or its process stopped, for longer than allowed."""
        hub = self.nodes[0]
        if self.verdict is None and self.started:
            self.verdict = _lost(hub, f"{hub} itself was suspended or stopped for {seconds:.0f} s")

    def decide(self, now: float) -> Verdict | None:
        """Return how the run ended, or None while it goes on. Once decided, it stays so."""
        if self.verdict is None:
            self.verdict = self._running(now) if self.started else self._waiting(now)
        return self.verdict

    def _waiting(self, now: float) -> Verdict | None:
        if now - self._begun <= self.ready_timeout or not self.missing:
            return None
        message = f"{', '.join(self.missing)} did not get ready within {self.ready_timeout:g} s"
        return Verdict("failed", Cause(self.missing[0], None, "not_ready", message))

    def _running(self, now: float) -> Verdict | None:
        first = first_failure(self._failures)
        if first and not is_echo(first.message):
            return _failed(first)
        busy = {node: m for node, m in self._members.items() if m.ended is None}
        for node, member in busy.items():
            if not member.connected:
                return _lost(
                    node,
                    f"the supervisor of {node} broke off: it was killed or the machine went down",
                )
        for node, member in busy.items():
            if now - member.heard > self.silence_timeout:
                return _lost(
                    node,
                    f"{node} was silent for {now - member.heard:.0f} s: it hangs, "
                    "sleeps, or its network is cut",
                )
        if first:
            patience = self.silence_timeout + 2
            return _failed(first) if not busy or now - first.at > patience else None
        if busy:
            return None
        return self._stopped("stopped after its step") if self._stop_by else Verdict("finished")

    def _stopped(self, how: str) -> Verdict:
        node = self._stop_by or self.nodes[0]
        return Verdict("stopped", Cause(node, None, "stopped", f"{how}, as asked on {node}"))


def _failed(first: _Failure) -> Verdict:
    return Verdict("failed", Cause(first.node, first.rank, "rank_failed", first.message))


def _lost(node: str, message: str) -> Verdict:
    return Verdict("failed", Cause(node, None, "node_lost", message))
