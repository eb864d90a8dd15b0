"""A node's votes on its disk: what it has promised survives a crash or a power cut."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth.supervisor.decisions.view import Proposal
from hearth.supervisor.decisions.voting import (
    PROPOSAL_LIFETIME,
    Attempt,
    Config,
    Refusal,
    Votes,
    commit,
    promise,
)
from hearth.supervisor.messages import Vote
from hearth.supervisor.spec import Spec

NAME = "votes.json"

RETRY = 1.0
"""Seconds between two attempts to write to a disk that was full."""


class VotesError(HearthError):
    """A node's votes cannot be read or saved."""


@dataclass(frozen=True)
class VotesFile:
    """The votes of one `node` in one `launch` of a `run`, in a `folder` of that node.

    A resumed run is another launch, perhaps with other nodes, and begins with an empty disk.
    """

    folder: Path
    run: str
    node: str
    launch: str

    @property
    def path(self) -> Path:
        """The file; it need not exist."""
        return self.folder / NAME

    def read(self, known: int = -1) -> tuple[Votes, str]:
        """Return the saved votes, and a remark for the log if the file had to be ignored, else "".

        `known` is the newest generation in which this node is known to have trained in this launch.
        A file that is damaged, was copied from another node or run, or is older than that (as out
        of a backup), says nothing of what this node promised. The node is then one with an empty
        disk: that is always safe, since it does not count until a team has taken it in.

        Raises `VotesError` if there is a file that cannot be read.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return Votes(), ""
        except UnicodeDecodeError:
            return Votes(), self._ignored("it is damaged")
        except OSError as error:
            raise VotesError(
                f"{self.path}: the node's votes cannot be read ({error.strerror}): make the file "
                "readable for the user of the run, or move it away; the node then takes part like "
                "one with an empty disk"
            ) from error
        try:
            content = json.loads(text)
            run, node, launch = (content.pop(name) for name in ("run", "node", "launch"))
            votes = Votes.from_dict(content)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return Votes(), self._ignored("it is damaged")
        if (run, node) != (self.run, self.node):
            return Votes(), self._ignored(f"it belongs to {node} in run '{run}'")
        if launch != self.launch:
            return Votes(), ""
        if votes.newest < known:
            return Votes(), self._ignored(f"it is older than generation {known}, trained in here")
        return votes, ""

    def save(self, votes: Votes) -> None:
        """Write the votes; when this returns they are on the disk.

        Raises `VotesError` if they are not, for example on a full disk. The node must then refuse
        to promise; the file has the old votes or, at worst, one promise too many, which is safe.
        """
        whose = {"run": self.run, "node": self.node, "launch": self.launch}
        content: dict[str, Any] = {**whose, **votes.to_dict()}
        try:
            write_whole(self.path, json.dumps(content, indent=1) + "\n", synced=True)
        except OSError as error:
            raise VotesError(
                f"{self.path}: the vote of {self.node} cannot be saved ({error.strerror}): without "
                "it the node cannot be in a new team; free some space on that disk or make it "
                "writable"
            ) from error

    def _ignored(self, why: str) -> str:
        return (
            f"{self.path} is ignored: {why}. {self.node} takes part like a node with an empty "
            "disk: its vote counts again once a team has taken it in"
        )


class VoteStore:
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
