"""The settings of a run that its decisions follow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Settings of a run, on every node the same but for the first generation. Times are seconds.

    Attributes:
        nodes: all nodes of the run, in rank order.
        elastic: whether the others go on without a lost node.
        min_nodes: fewest nodes of a team.
        ready_timeout: for nodes that are missing before the first team.
        first_timeout: likewise, if that is longer, as for a run out of a queue.
        return_timeout: for nodes that are missing later, while too few are left; 0: the first loss
            ends the run.
        first_generation: lowest generation of a team that this node proposes, 1 or more.
        relaunched: whether ranks live for one team only, and do not tell what they do.
    """

    nodes: tuple[str, ...]
    first_generation: int = 1
    elastic: bool = True
    min_nodes: int = 1
    ready_timeout: float = 120.0
    return_timeout: float = 3600.0
    first_timeout: float = 0.0
    relaunched: bool = False
