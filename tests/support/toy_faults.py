"""Random faults for the simulated cluster."""

from __future__ import annotations

from random import Random

from hypothesis import strategies as st

from support.toy_cluster import Cluster

Fault = tuple[float, str, str, str, float]
"""Seconds before it, its kind, the node, another node, and its length in seconds."""

CURED = (
    "kill",
    "wipe",
    "restore",
    "crash at save",
    "kill rank",
    "hang rank",
    "cut",
    "isolate",
    "suspend",
    "leave",
    "fill disk",
    "want",
    "wall",
)
"""Faults that the run survives with all nodes."""

HEALED = 60.0
"""A fault of the longest kind is over after these seconds: a node that leaves is back."""


def faults(
    names: tuple[str, ...], most: int, kinds: tuple[str, ...] = CURED
) -> st.SearchStrategy[list[Fault]]:
    """Return a strategy of faults on these nodes, many of them soon after each other."""
    return st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.03, 0.2, 1.0, 3.0, 7.0, 15.0]) | st.floats(0, 20),
            st.sampled_from(kinds),
            st.sampled_from(names),
            st.sampled_from(names),
            st.sampled_from([0.5, 2.0, 5.9, 6.1, 12.0, 25.0]),
        ),
        max_size=most,
    )


def inflict(cluster: Cluster, fault: Fault) -> None:
    """Let time pass, and then a fault happen."""
    after, kind, node, other, length = fault
    cluster.run(after)
    match kind:
        case "kill" | "wipe":
            cluster.kill(node, length, wiped=kind == "wipe")
        case "restore":
            cluster.restore(node, length)
        case "crash at save":
            cluster.nodes[node].crashes_at_save = True
        case "kill rank":
            cluster.kill_rank(node)
        case "fail rank":
            cluster.fail_rank(node)
        case "hang rank":
            cluster.hang_rank(node)
        case "cut":
            cluster.cut(node, other, length)
        case "isolate":
            cluster.isolate(node, length)
        case "suspend":
            cluster.suspend(node, length)
        case "leave":
            cluster.leave(node, length)
        case "want":
            cluster.want(node, length)
        case "wall":
            cluster.raise_wall(node, length)
        case "fill disk":
            cluster.fill_disk(node, length)
        case "stop" | "stop now":
            cluster.stop_run(node, now=kind == "stop now")


APART = (
    *["isolate", "cut"] * 3,
    *("crash at save", "restore", "kill", "leave", "suspend", "fill disk"),
)
"""Faults that could make two groups of one."""


def explore(seed: int, steps: int) -> Cluster:
    """Play a random history whose messages come late, twice and in any order.

    The cluster raises `AssertionError` if two groups train at one time.
    """
    random = Random(seed)
    names = ("desk", "laptop", "shelf", "tower")[: random.randint(2, 4)]
    cluster = Cluster(names, random, last_step=10**9)
    cluster.run(random.choice((0.0, 8.0, 20.0)))
    cluster.disorder = True
    for _ in range(steps):
        after, length = (
            random.choice((0.2, 1.0, 6.0, 15.0)),
            random.choice((6.1, 12.0, 25.0)),
        )
        kind, node, other = random.choice(APART), random.choice(names), random.choice(names)
        inflict(cluster, (after, kind, node, other, length))
    cluster.run(HEALED)
    return cluster
