"""An event of a run that a person wants to know of, as the supervisor hands it to the sender."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "finished", "failed", "stopped", "apart", "disk", "waiting", "back", "unreached", "slow_link"
]
"""How a run ended; a node's part ended and the run goes on; a node writes no checkpoints; the run
waits for nodes; it goes on; nodes of it do not reach each other; or a link holds it up.
"""


READY, RETURN = "launch_ready_timeout", "launch_return_timeout"


@dataclass(frozen=True)
class Limit:
    """A run's timeout for missing nodes, and its setting.

    Attributes:
        seconds: the timeout, from the beginning of the wait.
        setting: its name.
        answering: seconds of the timeout for a machine that answers without a supervisor of the
            run, where that ends the wait sooner; else 0.
        refused: by node the time (since 1970) of its machine's first such answer.
    """

    seconds: float
    setting: str
    answering: float = 0.0
    refused: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """One event; times are seconds since 1970.

    Attributes:
        run: name of the run.
        nodes: all its nodes, in rank order.
        about: the node that failed, or those that the run waits or waited for.
        began: time when the supervisor, or the wait, began.
        at: time of the event.
        ends: time when the run gives up waiting at the latest, if it does.
        limit: name of the setting that ends the wait then.
        answering: seconds of a shorter timeout, once the machines answer without a supervisor of
            the run; 0 where there is none.
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
    limit: str = ""
    answering: float = 0.0
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
