"""Groups of nodes that are all connected to each other."""

from __future__ import annotations

import time
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hearth.supervisor.decisions.forming import cliques
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.messages import NodeReport, Reaches


def reports(names: list[str], links: set[frozenset[str]]) -> dict[str, NodeReport]:
    return {
        node: NodeReport(
            node,
            "loaded",
            Votes(),
            tuple(other for other in names if frozenset((node, other)) in links),
            reaches=Reaches(tuple(names), tuple(names)),
        )
        for node in names
    }


@given(st.data(), st.integers(0, 7))
def test_all_groups_that_cannot_grow_are_found_once(data, count):
    names = [f"node{number}" for number in range(count)]
    pairs = [frozenset(pair) for pair in combinations(names, 2)]
    links = data.draw(st.sets(st.sampled_from(pairs)) if pairs else st.just(set()))

    def connected(group: tuple[str, ...]) -> bool:
        return all(frozenset(pair) in links for pair in combinations(group, 2))

    groups = [
        {*group}
        for size in range(1, count + 1)
        for group in combinations(names, size)
        if connected(group)
    ]
    expected = [group for group in groups if not any(group < other for other in groups)]
    found = [*cliques(reports(names, links))]
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))


def test_a_large_cluster_is_looked_through_several_times_a_second():
    names = [f"node{number:02}" for number in range(64)]
    pairs = {frozenset(pair) for pair in combinations(names, 2)}
    missing = {frozenset(names[at : at + 2]) for at in (0, 10, 20)}
    given_reports = reports(names, pairs - missing)
    began = time.process_time()
    assert len([*cliques(given_reports)]) == 8
    assert time.process_time() - began < 5
