"""An event of a run that a person wants to know of, as the supervisor hands it to the sender."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

Kind = Literal["finished", "failed", "stopped", "apart", "waiting", "back"]
"""How a run ended; a node's part ended and the run goes on; it waits for nodes; it goes on."""


@dataclass(frozen=True)
class Event:
    """One event; times are seconds since 1970.

    Attributes:
        run: name of the run.
        nodes: all its nodes, in rank order.
        about: the node that failed, or those that the run waits or waited for.
        began: time at which the supervisor, or the wait, began.
        at: time of the event.
        ends: time at which the run gives up waiting at the latest, if it does.
        message: the cause, as recorded.
        by_rank: whether it is the error of a rank.
        begun: whether the ranks have trained.
        script: file name of a user's script, '' for Hearth's trainer.
        results: folder with the record of the run on this node.
        log: log of the node that failed, '' if it is another one's.
        hearth: the `hearth` command for the run's inventory.
    """

    kind: Kind
    run: str
    nodes: tuple[str, ...]
    about: tuple[str, ...]
    began: float
    at: float
    ends: float | None = None
    message: str = ""
    by_rank: bool = False
    begun: bool = False
    script: str = ""
    results: str = ""
    log: str = ""
    hearth: str = "hearth"


def speaker(nodes: tuple[str, ...], absent: Set[str]) -> str:
    """Return the one node that sends a message: the first in rank order that is not `absent`."""
    return next((node for node in nodes if node not in absent), "")
