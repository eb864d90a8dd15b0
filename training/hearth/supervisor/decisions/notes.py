"""Everything that the decisions of a node keep from one call to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hearth.diagnose import is_echo
from hearth.supervisor.cause import Cause, Failure
from hearth.supervisor.decisions.view import View
from hearth.supervisor.decisions.voting import newest_committed
from hearth.supervisor.messages import TEAMED, WAITING, Report, Stop

FUTILE = 4
"""Failures in a row without a step gained, after which another try would fail, too."""

AVOID = 10.0
"""Seconds for which a node is left out after a group with it could not be formed, or voted on.

Twice as long after each further one, as each attempt may cost the others half a minute.
"""

MOST_STRIKES = 7


@dataclass
class Futility:
    """Count of failures since the last step gained."""

    count: int = 0
    step: int = -1

    def add(self, step: int) -> None:
        """Note a failure after `step` steps."""
        self.count = 1 if step > self.step else self.count + 1
        self.step = max(step, self.step)


RESTART_WAITS = (0.0, 5.0, 60.0)
"""Seconds before each start of ranks that failed since the last step gained.

What is gone for a minute, such as a driver or a mount, ends no node's part in the run.
"""


@dataclass(frozen=True)
class Promise:
    """A promise of this node that may still become a team."""

    proposer: str
    generation: int
    at: float


@dataclass
class Notes:
    """The memory of a node's decisions. Only they change it.

    Attributes:
        ended: outcome by node whose ranks have ended, even if it is gone since.
        leaving: reason by node that leaves in order, even if it is gone since.
        failures: by node, in the order heard, its ranks' own error and the time it was heard.
        members: the nodes of the newest team that any connected node knows of.
        relaunched: as in the settings.
        stop: the request to stop the run.
        lost: the last loss of a member of this node's team.
        left_at: time at which this node was asked to leave.
        returns: whether it was asked by the house, and comes back.
        waits_at: time since which its ranks wait, in no group; None while they do not.
        team_at: time at which this node was told to form its team.
        team: that team's generation.
        judged: generation of the last team whose break was judged.
        interrupted, paused: generation of the last group that was interrupted or paused.
        told_leave: whether the ranks that now live were told to leave.
        free_by: time at which they are ended if they have not done it by themselves; None: never.
        broken: breaks of groups that nothing else explains.
        failed_at: time at which this node's ranks failed; None if they have not, or live again.
        restarts: failures of this node's ranks.
        step: the greatest number of steps that this node's ranks have done in a group.
        failed_forms: groups in a row that could not be formed.
        late: whether this node has to start its ranks again, as it did not form them.
        avoid: nodes to leave out of teams, and until when.
        strikes: times in a row that a node did not form a group with the others, or vote on it.
        silent: the voters that did not answer this node's last proposal in time.
        promise: this node's last promise.
        retry_at: time before which this node proposes nothing.
        refusals: refused proposals in a row.
        idle_since: time since which no node that is connected trains; None while one does.
        held_until: last time at which nothing but the house held up the run.
        said: the missing nodes that were last said.
        said_wanted: the nodes that the house wants, with reasons, that were last said to be waited
            for.
        said_gaps: the pairs that do not reach each other, as last said.
    """

    ended: dict[str, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    failures: dict[str, tuple[Failure, float]] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    relaunched: bool = False
    stop: Stop | None = None
    lost: Cause | None = None
    left_at: float | None = None
    returns: bool = False
    waits_at: float | None = None
    team_at: float = 0.0
    team: int = 0
    judged: int = 0
    interrupted: int = 0
    paused: int = 0
    told_leave: bool = False
    free_by: float | None = None
    broken: Futility = field(default_factory=Futility)
    restarts: Futility = field(default_factory=Futility)
    failed_at: float | None = None
    step: int = 0
    failed_forms: int = 0
    late: bool = False
    avoid: dict[str, float] = field(default_factory=dict)
    strikes: dict[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    promise: Promise | None = None
    retry_at: float = 0.0
    refusals: int = 0
    idle_since: float | None = None
    held_until: float = 0.0
    said: tuple[str, ...] = ()
    said_wanted: Mapping[str, str] = field(default_factory=dict)
    said_gaps: tuple[str, ...] = ()

    @property
    def over(self) -> str:
        """The outcome of the run, if ranks have ended: "finished", "stopped" or "".

        Those of one node are enough if they are resident and know why. Relaunched ones do not:
        their group may have ended for a pause or a stop that their node is still to hear of.
        """
        outcomes = {*self.ended.values()}
        if self.relaunched and self.stop:
            return "stopped" if outcomes else ""
        if self.relaunched and not {*self.members} <= self.ended.keys():
            return ""
        return "finished" if "finished" in outcomes else next(iter(outcomes), "")

    @property
    def restart_wait(self) -> float:
        """Seconds between the failure of this node's ranks and their next start."""
        again = self.restarts.count if self.step <= self.restarts.step else 0
        return RESTART_WAITS[min(again, len(RESTART_WAITS) - 1)]

    def avoided(self, now: float) -> set[str]:
        """Return the nodes to leave out of teams for now."""
        return {node for node, until in self.avoid.items() if now < until}

    def leave_out(self, node: str, now: float) -> None:
        """Leave a node out of teams, longer each time."""
        self.strikes[node] = min(self.strikes.get(node, 0) + 1, MOST_STRIKES)
        self.avoid[node] = now + AVOID * 2 ** (self.strikes[node] - 1)

    def observe(self, view: View) -> None:
        """Take note of what the view shows for the first time."""
        own = view.own
        newest = newest_committed(report.votes for report in view.reports.values())
        self.members = newest.nodes if newest else ()
        self.relaunched = view.settings.relaunched
        for node, report in view.reports.items():
            self._observe_node(view, node, report)
        if own.state != "failed":
            self.failed_at = None
        elif self.failed_at is None:
            self.failed_at = view.now
        if not own.leaving:
            self.left_at = None
        elif self.left_at is None or own.returns != self.returns:
            self.left_at, self.returns = view.now, own.returns
        if own.state not in WAITING:
            self.waits_at = None
        elif self.waits_at is None:
            self.waits_at = view.now
        if own.state in ("starting", "away"):
            self.told_leave, self.free_by, self.late = False, None, False
        if own.state in TEAMED:
            self.step = max(self.step, own.step)
        if own.state == "training":
            self.failed_forms = 0
            if view.team:
                self._forgive(view.team.nodes, view)
        if view.team and view.team.generation != self.team:
            self.team, self.team_at = view.team.generation, view.now
            self.refusals = 0
        self.lost = self._loss(view) or self.lost
        self._judge_break(view)
        idle = not any(report.state in TEAMED for report in view.reports.values())
        if not idle:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = view.now if self.team else view.began

    def _observe_node(self, view: View, node: str, report: Report) -> None:
        if report.leaving:
            self.leaving[node] = report.leaving
        else:
            self.leaving.pop(node, None)
            if report.ended:
                self.ended.setdefault(node, report.ended)
            elif self.relaunched:
                self.ended.pop(node, None)
        if report.stopping and (self.stop is None or report.stopping.now > self.stop.now):
            self.stop = report.stopping
        if report.state != "failed" or report.failure is None or curable(report.failure):
            self.failures.pop(node, None)
        elif not fails_apart(view, node):
            self.failures.setdefault(node, (report.failure, view.now))

    def _forgive(self, team: tuple[str, ...], view: View) -> None:
        """Forget the strikes of nodes that train with this one."""
        for node in self.strikes.keys() & {*team}:
            report = view.reports.get(node)
            if report and report.state == "training":
                del self.strikes[node]

    def _loss(self, view: View) -> Cause | None:
        """Return the loss of the first member of this node's team that is gone, if any."""
        for node in view.team.nodes if view.team else ():
            absence = view.gone.get(node)
            expected = node in self.ended or node in self.leaving
            if absence and absence.since >= self.team_at and not expected:
                return loss(view, node)
        return None

    def _judge_break(self, view: View) -> None:
        """Find out, once all its nodes wait, whether anything explains why a group broke.

        If not, count it, and avoid the nodes that did not form the group with the others.
        """
        own, team = view.own, view.team
        if team and any(node in view.wanted for node in team.nodes):
            self.judged = team.generation  # The house explains it, also once it has let go.
        if team and own.state == "starting":
            self.judged = team.generation  # The death of the ranks, which were in it, explains it.
        if team is None or self.judged >= team.generation or not own.out_of_group:
            return
        if own.generation != team.generation or own.state == "paused":
            return
        if any(report.state in TEAMED for report in view.reports.values()):
            return
        self.judged = team.generation
        reports = view.reports
        members = {node: reports[node] for node in team.nodes if node in reports}
        if any(report.generation != team.generation for report in members.values()):
            return  # Others have formed newer teams since, while this node started its ranks again.
        if len(members) < len(team.nodes) or any(
            report.leaving or not report.out_of_group for report in members.values()
        ):
            return
        self.broken.add(max(report.step for report in members.values()))
        newest = max(report.trained for report in members.values())
        late = {node for node, report in members.items() if report.trained < newest}
        if newest == team.generation and not late:
            self.failed_forms = 0
            return
        self.failed_forms += 1
        # Of equals the first one: nodes are in rank order.
        keeper = max(members, key=lambda node: (members[node].trained, members[node].step))
        for node in late:
            self.leave_out(node, view.now)
        if self.failed_forms > 1 and own.state in WAITING:
            self.late = own.node in late if late else own.node != keeper


def curable(failure: Failure) -> bool:
    """Return whether a new start of the ranks may succeed: the error is not their own."""
    return failure.curable or is_echo(failure.message)


def fails_apart(view: View, node: str) -> bool:
    """Return whether others go on, as a team that a node whose ranks failed was about to join.

    Its error, such as a missing file or a broken driver, is not theirs. That of ranks which have
    trained is: the others may just have gone on without them for a moment.
    """
    if view.reports[node].trained:
        return False
    last = newest_committed(report.votes for report in view.reports.values())
    if last is None or node in last.nodes:
        return False
    states = [report.state for report in view.reports.values() if report.trained]
    return any(state in TEAMED | WAITING | {"ended"} for state in states)


def loss(view: View, node: str) -> Cause:
    """Return the cause for a node that is gone: which node to inspect, and why."""
    absence = view.gone.get(node)
    why, culprit = absence.why if absence else "is not connected", node
    if absence and absence.taken and not why.startswith("suspended"):
        message = f"{node} was lost ({why}): {absence.taken}"
    elif why.startswith(("broke off", "refused")):
        message = f"the supervisor of {node} broke off: it was killed or the machine went down"
    elif why.startswith("silent"):
        message = f"{node} was {why}: it hangs, sleeps, or its network is cut"
    elif why.startswith("suspended"):
        culprit = view.node
        message = f"{view.node} itself was {why}"
    else:
        message = f"{node} {why}"
    return Cause(culprit, None, "node_lost", message)
