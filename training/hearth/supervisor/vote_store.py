"""A node's votes on its disk: what it has promised survives a crash or a power cut."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Votes
from hearth.supervisor.spec import Spec

NAME = "votes.json"


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
    """Puts a node's votes on its disk. `say` takes lines for the log."""

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self._say = say
        # Every launch has a new token, which a supervisor that comes back still has.
        launch = hashlib.sha256(spec.token.encode()).hexdigest()[:16]
        self._file = VotesFile(spec.results, spec.run, spec.node, launch)
        self._saving: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether a vote has been on its way to the disk for longer than any proposal lives."""
        return self._saving is not None and boot_clock() - self._saving > PROPOSAL_LIFETIME

    def read(self, known: int = -1) -> Votes:
        """Return the votes of a node that is back in this launch, in which it trained in `known`.

        Raises:
            VotesError: there are some that cannot be read.
        """
        votes, remark = self._file.read(known)
        if remark:
            self._say(remark)
        return votes

    async def save(self, votes: Votes) -> str:
        """Put votes on the disk; return the reason why they are not there, "" if they are."""
        self._saving = boot_clock()
        try:
            await asyncio.to_thread(self._file.save, votes)
        except VotesError as error:
            return str(error)
        finally:
            self._saving = None
        return ""
