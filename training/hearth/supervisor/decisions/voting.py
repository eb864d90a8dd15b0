"""The voting rule: which nodes may go on as a team, so that two groups never train one run.

Dynamic linear voting with remembered attempts (Jajodia, Mutchler 1990; Yeger Lotem, Keidar, Dolev
1997). Pure: the caller keeps `Votes` on disk, carries messages, and tells the time.

A team is formed in three steps. A node, the proposer, collects the votes of the nodes it reaches
and asks `may_attempt`. It sends the `Attempt` to all its voters, the members of the new team and
the nodes that leave in order; each checks it with `promise`, saves the new votes and answers yes.
Only when *every* voter has said yes, the proposer tells the members to form the group, and each
asks `commit` whether that order still holds. The proof needs the caller to keep to these rules:

1. A node saves what `promise` returned, synced to disk, before it answers yes. If that fails, it
   refuses (but see `needs_no_disk`). What `commit` returned it saves too, but may go on without:
   the promise is on disk.
2. A node that promises is in no group: its ranks wait, or were interrupted before. It enters a
   group again only after `commit` returned votes.
3. A proposer promises first, as any other voter, and forgets its attempt when it restarts, when a
   voter's connection breaks, or `PROPOSAL_LIFETIME` seconds after it was sent, whichever is first.
   It looks at the clock when it counts a vote, not only when it waits for one.

Votes from an empty disk: such a node may have forgotten a promise. It can be taken
into a team, but it does not count until it has committed a team that it promised since. A launch
begins with nothing but such nodes; the first team therefore needs all nodes of the run. When all
of them vote, no team can be training elsewhere, whatever anyone remembers: this always suffices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

PROPOSAL_LIFETIME = 2.0
"""Seconds after which a proposer gives up an attempt that not all voters have answered.

A node cannot lose its disk, start again and be taken into another team in that time.
"""


@dataclass(frozen=True)
class Config:
    """A team: its generation, a number that no other team of the run has, and its nodes.

    `nodes` are in rank order; the first one breaks a tie.
    """

    generation: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Votes:
    """The memory of one node, kept on its disk; without arguments, that of an empty disk.

    `committed` is the newest team that this node knows to have been agreed by all its voters;
    `attempts` are the teams that the node itself promised since, oldest first: any of them may
    have been formed. `counts`: whether the node counts towards a quorum.
    """

    committed: Config | None = None
    attempts: tuple[Config, ...] = ()
    counts: bool = False

    @property
    def newest(self) -> int:
        """The highest generation that the node knows; -1 if it knows none."""
        known = [attempt.generation for attempt in self.attempts]
        return max(known + ([self.committed.generation] if self.committed else []), default=-1)


@dataclass(frozen=True)
class Attempt:
    """A team that a proposer may try to form.

    Its voters are the nodes of `config` and those `leaving`, which hand in their votes and are in
    no team then; those that count are `counted`. `known` is the newest team that any of them
    knows to have been agreed.
    """

    config: Config
    leaving: tuple[str, ...]
    counted: tuple[str, ...]
    known: Config | None

    @property
    def voters(self) -> tuple[str, ...]:
        """The nodes that must all promise before the team may be formed."""
        return self.config.nodes + self.leaving


@dataclass(frozen=True)
class Refusal:
    """A team that may not be formed now: the `reason`, and the nodes that could change it."""

    reason: str
    missing: tuple[str, ...] = ()


def quorum(voters: Collection[str], config: Config) -> bool:
    """Return whether `voters` may decide for the team `config`.

    They are more than half of its nodes, or exactly half with the first one among them. Any two
    quorums of one team share a node.
    """
    present = [node for node in config.nodes if node in voters]
    missing = len(config.nodes) - len(present)
    tie = len(present) == missing and config.nodes[0] in present
    return len(present) > missing or tie


def may_attempt(
    known: Mapping[str, Votes], run: Sequence[str], leaving: Collection[str] = ()
) -> Attempt | Refusal:
    """Return the team of all nodes in `known`, or the reason why they may not form one.

    Args:
        known: votes of each node that is ready to promise, the proposer's own included.
        run: all nodes of the run, in rank order.
        leaving: those of `known` that vote but will not be in the team.
    """
    committed = newest_committed(known.values())
    votes = {node: learn(its, committed) for node, its in known.items()}
    voters = tuple(node for node in run if node in known)
    team = tuple(node for node in voters if node not in leaving)
    if not team:
        return Refusal("every node here leaves the run: no team is left to hand the votes to")
    counted = tuple(node for node in voters if votes[node].counts)
    generation = max(its.newest for its in votes.values()) + 1
    attempts = {attempt for its in votes.values() for attempt in its.attempts}
    if refusal := _objection(voters, counted, run, committed, attempts):
        return refusal
    left = tuple(node for node in voters if node in leaving)
    return Attempt(Config(generation, team), left, counted, committed)


def promise(votes: Votes, attempt: Attempt, node: str, run: Sequence[str]) -> Votes | Refusal:
    """Return the votes that `node` must save before it says yes to an attempt, or why it says no.

    It checks the attempt against its own memory: the proposer's may be out of date. `run` holds
    all nodes of the run, in rank order.
    """
    mine = learn(votes, attempt.known)
    generation = attempt.config.generation
    if node not in attempt.voters:
        return Refusal(f"{node} has no vote in generation {generation}: it is in no such team")
    if generation <= mine.newest:
        return Refusal(
            f"{node} knows of generation {mine.newest}: generation {generation} comes too late"
        )
    if node in attempt.counted and not mine.counts:
        return Refusal(f"{node} has an empty disk: it does not count until it was in a team")
    refusal = _objection(attempt.voters, attempt.counted, run, mine.committed, mine.attempts)
    if refusal:
        return refusal
    # A newer attempt of the same nodes asks for the same quorum: with only the newest of them, what
    # is remembered stays short, however often the nodes try.
    kept = tuple(
        each for each in mine.attempts if not mine.counts or each.nodes != attempt.config.nodes
    )
    return replace(mine, attempts=(*kept, attempt.config))


def needs_no_disk(votes: Votes, attempt: Attempt, node: str, run: Sequence[str]) -> bool:
    """Return whether `node` may promise an attempt though its disk takes no votes.

    So it is for the first team, of which it is no member, if it has promised nothing before. Such a
    team has the votes of all nodes of the run, so that another one would need those of its members,
    which remember it.
    """
    return votes == Votes() and node in attempt.leaving and {*run} == {*attempt.voters}


def commit(votes: Votes, config: Config) -> Votes | None:
    """Return the votes of a member whose ranks may form the group of `config` now.

    None if the team is not the newest one that this node promised, or was committed before: the
    order to form it is out of date, and the ranks must not follow it.
    """
    if votes.attempts[-1:] != (config,):
        return None
    return Votes(config, (), counts=True)


def learn(votes: Votes, committed: Config | None) -> Votes:
    """Return votes that take note of a team that another node knows to have been agreed.

    Older attempts no longer matter. A promise of this very team stays, as its order to form the
    group may still arrive.
    """
    if committed is None or (
        votes.committed and votes.committed.generation >= committed.generation
    ):
        return votes
    kept = tuple(
        attempt
        for attempt in votes.attempts
        if attempt.generation > committed.generation or attempt == committed
    )
    return Votes(committed, kept, votes.counts or committed in kept)


def newest_committed(known: Iterable[Votes]) -> Config | None:
    """Return the newest team that any of these votes know to have been agreed, None without one."""
    configs = [votes.committed for votes in known if votes.committed]
    return max(configs, key=lambda config: config.generation, default=None)


def _objection(
    voters: Collection[str],
    counted: Collection[str],
    run: Sequence[str],
    committed: Config | None,
    attempts: Iterable[Config],
) -> Refusal | None:
    """Return why these voters may not form a team, None if they may."""
    absent = tuple(node for node in run if node not in voters)
    if not absent:
        return None
    if committed is None:
        return Refusal(
            f"no node here remembers a team of this run: the first one needs all its nodes; "
            f"missing: {', '.join(absent)}",
            absent,
        )
    since = [each for each in attempts if each.generation > committed.generation]
    for config in (committed, *sorted(since, key=lambda each: each.generation)):
        if not quorum(counted, config):
            return _short_of(config, voters, counted, absent, tried=config != committed)
    return None


def _short_of(
    config: Config,
    voters: Collection[str],
    counted: Collection[str],
    absent: tuple[str, ...],
    tried: bool,
) -> Refusal:
    """Return the refusal of voters that are no quorum of `config`, a team that was only `tried`."""
    present = [node for node in config.nodes if node in counted]
    team = "team that was tried" if tried else "last team"
    here = f"{', '.join(present)} of" if present else "no node of"
    reason = (
        f"only {len(present)} of {len(config.nodes)} votes are here: {here} the {team} "
        f"({', '.join(config.nodes)}; generation {config.generation}). It takes more than half, or "
        f"half with {config.nodes[0]}"
    )
    missing = tuple(node for node in config.nodes if node not in voters)
    if empty := [node for node in voters if node in config.nodes and node not in counted]:
        reason += f"; {', '.join(empty)} lost the disk's memory and does not count yet"
    missing = missing or absent
    return Refusal(f"{reason}; missing: {', '.join(missing)}", missing)
