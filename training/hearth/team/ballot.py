"""A node's votes on its disk, and its own proposal of a team while the others vote on it."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections.abc import Callable

from hearth.base.clock import boot_clock
from hearth.supervise.spec import Spec
from hearth.team.messages import Vote
from hearth.team.view import Proposal
from hearth.team.votes import VotesError, VotesFile
from hearth.team.voting import PROPOSAL_LIFETIME, Attempt, Config, Refusal, Votes, commit, promise

RETRY = 1.0
"""Seconds between two attempts to write to a disk that was full."""


class Ballot:
    """Keeps the rule that a node is bound only by votes that are on its disk.

    `say` takes lines for the log.

    Attributes:
        votes: what the node remembers of teams.
        voteless: the reason why its disk takes no votes; "": it does.
        proposal: its own proposal in flight.
    """

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self.votes = Votes()
        self.voteless = ""
        self.proposal: Proposal | None = None
        self._node, self._nodes = spec.node, spec.nodes
        self._say = say
        # Every launch has a new token, which a supervisor that comes back still has.
        launch = hashlib.sha256(spec.token.encode()).hexdigest()[:16]
        self._file = VotesFile(spec.results, spec.run, spec.node, launch)
        self._tried = 0.0
        self._saving: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether a vote has been on its way to the disk for longer than any proposal lives."""
        return self._saving is not None and boot_clock() - self._saving > PROPOSAL_LIFETIME

    def open(self, known: int = -1) -> None:
        """Read the votes of a node that is back in this launch, in which it trained in `known`.

        Raises:
            VotesError: there are some that cannot be read.
        """
        self.votes, remark = self._file.read(known)
        if remark:
            self._say(remark)

    async def save(self, votes: Votes) -> bool:
        """Put votes on the disk; return whether they are there."""
        self._tried = self._saving = boot_clock()
        try:
            await asyncio.to_thread(self._file.save, votes)
        except VotesError as error:
            if not self.voteless:
                self._say(str(error))
            self.voteless = str(error)
            return False
        finally:
            self._saving = None
        self.votes, self.voteless = votes, ""
        return True

    async def retry(self) -> None:
        """Try again to write to a disk that took no votes."""
        if self.voteless and boot_clock() - self._tried > RETRY:
            await self.save(self.votes)

    async def commit(self, config: Config) -> bool:
        """Commit to a team, whose order to form the group has come; return whether it may."""
        committed = commit(self.votes, config)
        if committed is None:
            self._say(f"ignoring an old order to form generation {config.generation}")
            return False
        await self.save(committed)
        self.votes = committed  # the promise, which is on the disk, binds this node no less
        return True

    async def propose(self, attempt: Attempt, fresh: bool) -> bool:
        """Promise a team as its proposer; return whether the other voters can be asked."""
        promised = promise(self.votes, attempt, self._node, self._nodes)
        if isinstance(promised, Refusal) or not await self.save(promised):
            return False
        self.proposal = Proposal(attempt, fresh, boot_clock(), frozenset((self._node,)))
        return True

    def count(self, node: str, vote: Vote) -> None:
        """Count a vote for the own proposal, unless it comes too late."""
        proposal = self.proposal
        if proposal is None or proposal.attempt.config.generation != vote.generation:
            return
        if boot_clock() - proposal.since > PROPOSAL_LIFETIME:
            self.proposal = None
        elif vote.yes:
            self.proposal = dataclasses.replace(proposal, yes=proposal.yes | {node})
        else:
            refused = {**proposal.refused, node: vote.why}
            self.proposal = dataclasses.replace(proposal, refused=refused)

    def lost(self, node: str) -> None:
        """Forget the own proposal if this node, whose connection broke, votes on it."""
        if self.proposal and node in self.proposal.attempt.voters:
            self.proposal = None

    def close(self) -> bool:
        """End the own proposal; return whether a team may be made of it still."""
        proposal, self.proposal = self.proposal, None
        return proposal is not None and boot_clock() - proposal.since <= PROPOSAL_LIFETIME
