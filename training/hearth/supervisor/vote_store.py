"""A node's votes on its disk: promises survive a crash or a power cut."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict

from hearth.base.clock import boot_clock
from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth.base.json_lines import read_as
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Votes
from hearth.supervisor.spec import Spec

NAME = "votes.json"


class VotesError(HearthError):
    """A node's votes cannot be read or saved."""


class VoteStore:
    """The votes of one node in one launch of a run. `say` takes lines for the log.

    A resumed run is another launch, perhaps with other nodes, and begins with an empty disk.
    """

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self.path = spec.results / NAME
        self._say = say
        # Every launch has a new token, which a supervisor that comes back still has.
        launch = hashlib.sha256(spec.token.encode()).hexdigest()[:16]
        self._whose = {"run": spec.run, "node": spec.node, "launch": launch}
        self._saving: float | None = None

    @property
    def stuck(self) -> bool:
        """Whether a vote has been on its way to the disk for longer than any proposal lives."""
        return self._saving is not None and boot_clock() - self._saving > PROPOSAL_LIFETIME

    def read(self, known: int = -1) -> Votes:
        """Return the saved votes, and log it if the file has to be ignored.

        `known` is the newest generation that this node is known to have trained in, in this launch.
        A file that is damaged, was copied from another node or run, or is older than that (as out
        of a backup), says nothing of this node's promises. The node is then one with an empty
        disk: that is always safe, since it does not count until a team has taken it in.

        Raises `VotesError` if there is a file that cannot be read.
        """
        try:
            content = json.loads(self.path.read_bytes())
            whose = {name: content.pop(name) for name in self._whose}
            votes: Votes = read_as(Votes, content)
        except FileNotFoundError:
            return Votes()
        except OSError as error:
            raise VotesError(
                f"{self.path}: the node's votes cannot be read ({error.strerror}): make the file "
                "readable for the user of the run, or move it away; the node then takes part like "
                "one with an empty disk"
            ) from error
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return self._ignored("it is damaged")
        run, node, launch = whose.values()
        if (run, node) != (self._whose["run"], self._whose["node"]):
            return self._ignored(f"it belongs to {node} in run '{run}'")
        if launch != self._whose["launch"]:
            return Votes()
        if votes.newest < known:
            return self._ignored(f"it is older than generation {known}, trained in here")
        return votes

    async def save(self, votes: Votes) -> str:
        """Put votes on the disk; return the reason why they are not there, "" if they are.

        The node must refuse to promise if they are not, for example on a full disk. The file then
        has the old votes or, at worst, one promise too many, which is safe.
        """
        text = json.dumps(self._whose | asdict(votes), indent=1) + "\n"
        self._saving = boot_clock()
        try:
            await asyncio.to_thread(write_whole, self.path, text, synced=True)
        except OSError as error:
            return (
                f"{self.path}: the vote of {self._whose['node']} cannot be saved "
                f"({error.strerror}): without it the node cannot be in a new team; free some space "
                "on that disk or make it writable"
            )
        finally:
            self._saving = None
        return ""

    def _ignored(self, why: str) -> Votes:
        self._say(
            f"{self.path} is ignored: {why}. {self._whose['node']} takes part like a node with an "
            "empty disk: its vote counts again once a team has taken it in"
        )
        return Votes()
