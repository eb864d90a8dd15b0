"""Search for histories of two groups that train one run, under Hearth's voting rule and wrong ones.

    python -m tests.bench.voting --histories 20000

plays random histories of two to five nodes in a simulated network that is cut and mended, whose
messages come late, twice or never, and whose nodes crash, lose their disks, leave and propose teams
at the same time; then every history of two and three nodes within small limits. Each must end with
one team of all nodes, and at no time may two groups train. Rules that are wrong in one respect are
played as well, until two groups train. Last, whole nodes are simulated: the function by which a
supervisor decides about each event, with cut networks, crashes between a promise on the disk and
its answer, votes out of an old backup, and messages late, twice and in any order (`--clusters`).
It takes six minutes on one core and touches nothing.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path
from time import perf_counter
from typing import Any

from support.toy_faults import explore
from support.voting_histories import History, Limits, first_violation, search, settled
from support.voting_network import NAMES, WRONG, Network, Rules, Violation

from tests.bench.command import Bench, Figures, at_least
from tests.bench.lab import CommandFailed
from tests.bench.paper import aim, measured

STEPS = 120
"""Events of a random history."""

EVENTS_OF_A_CLUSTER = 10
"""Faults of a history of whole nodes."""

SEARCHES = (
    (2, Limits(proposals=3, crashes=1, wipes=1)),
    (3, Limits(proposals=2)),
    (3, Limits(proposals=2, crashes=1)),
    (3, Limits(proposals=2, wipes=1)),
)


def play(histories: int) -> dict[str, Any]:
    """Play random histories; return what happened in them, and the violations by number."""
    events: Counter[str] = Counter()
    nodes: Counter[int] = Counter()
    trained, found, began = 0, {}, perf_counter()
    for seed in range(histories):
        history = History(seed, Rules())
        try:
            history.play(STEPS)
        except Violation as violation:
            found[seed] = str(violation)
        events += history.events
        nodes[len(history.network.nodes)] += 1
        trained += history.network.trained
        if (seed + 1) % 5000 == 0:
            print(f"bench: {seed + 1} of {histories} histories", flush=True)
    return {
        "histories": histories,
        "events": dict(events),
        "nodes": {str(count): nodes[count] for count in sorted(nodes)},
        "trained": trained,
        "violations": found,
        "seconds": perf_counter() - began,
    }


def play_wrong(rules: Rules, histories: int) -> dict[str, Any]:
    """Play a wrong rule until it shows, and until two groups train."""
    found: dict[str, Any] = {"rule": rules.name}
    for name, strict in (("shown", True), ("two_train", False)):
        first = first_violation(rules, range(histories), STEPS, strict)
        found[name] = None if first is None else first[0] + 1
    return found


def search_all(count: int, limits: Limits) -> dict[str, Any]:
    """Search all histories within limits, from a team of all nodes and from empty disks."""
    found: dict[str, Any] = {"nodes": count, **vars(limits), "violation": ""}
    began = perf_counter()
    try:
        found["states"] = search(settled(count, Rules()), limits)
        found["states_from_empty"] = search(Network(NAMES[:count]), limits)
    except Violation as violation:
        found["violation"] = str(violation)
    print(f"bench: searched {count} nodes, {limits}", flush=True)
    return found | {"seconds": perf_counter() - began}


def explore_clusters(count: int) -> dict[str, Any]:
    """Play histories of whole nodes; return their groups and steps, and the violations by seed."""
    groups, steps, found, began = 0, 0, {}, perf_counter()
    for seed in range(count):
        try:
            cluster = explore(seed, EVENTS_OF_A_CLUSTER)
        except AssertionError as violation:
            found[seed] = str(violation)
            continue
        groups, steps = groups + len(cluster.groups), steps + len(cluster.steps)
    seconds = perf_counter() - began
    return {
        "histories": count,
        "groups": groups,
        "steps": steps,
        "violations": found,
        "seconds": seconds,
    }


def measure(given: Namespace, _: Path) -> dict[str, Any]:
    figures = {
        "steps": STEPS,
        "random": play(given.histories),
        "searches": [search_all(count, limits) for count, limits in SEARCHES],
        "clusters": explore_clusters(given.clusters),
        "wrong": [play_wrong(rules, given.histories) for rules in WRONG],
    }
    if missed := [each["rule"] for each in figures["wrong"] if each["shown"] is None]:
        raise CommandFailed(f"wrong rules that no history shows: {', '.join(missed)}")
    return figures


def table(figures: Figures) -> str:
    played, searches = figures["random"], figures["searches"]
    events = played["events"]
    clusters = figures["clusters"]
    violations = [*played["violations"].values(), *(each["violation"] for each in searches)]
    violations += clusters["violations"].values()
    states = sum(each.get("states", 0) + each.get("states_from_empty", 0) for each in searches)
    wrong = [each["two_train"] or played["histories"] for each in figures["wrong"]]
    lines = [
        f"Simulated: the functions that the supervisors use. {measured(figures)} "
        f"{played['histories']:,} random histories of two to five nodes with {figures['steps']} "
        f"events each ({events['cut']:,} cuts of the network, {events['crash']:,} crashes, "
        f"{events['wipe']:,} disks lost, messages lost, late or twice), and every short history "
        f"of two and three nodes ({states:,} states). Of {len(wrong)} rules that are wrong in one "
        f"respect, two groups train after {min(wrong)} to {max(wrong):,} histories. In "
        f"{clusters['histories']} histories of whole nodes, which decide by the supervisor's own "
        f"function, {clusters['groups']:,} groups took {clusters['steps']:,} steps.",
        "",
        aim(
            "At no time two groups train, and all nodes form one team when they are back",
            not any(violations),
            f"{sum(map(bool, violations))} violations",
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    bench = Bench("voting", __doc__, table)
    enough = at_least(1000, "wrong rules must show in them")
    bench.option("--histories", type=enough, default=20000, help="random ones (default: 20000)")
    bench.option("--clusters", type=at_least(1, "one must be played"), default=200, help="of nodes")
    bench.run(measure)
