"""Links that became slow are named with their speed, and no others."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.plan.link_watch import WHOLE, Exchanged, LinkWatch, ring_share
from hearth.plan.slow_links import SlowLinks

NODES = ("tower", "laptop", "oldbox")
SPEEDS = {"tower": 400.0, "laptop": 200.0, "oldbox": 100.0}
"""Tokens a second."""

RING = {("oldbox", "tower"): 940.0, ("tower", "laptop"): 940.0, ("laptop", "oldbox"): 940.0}
TOKENS, GIVEN = 280.0, 2.2e6


class Home:
    """A home whose ranks exchange in a ring, and what its ranks report of each step."""

    def __init__(self, seed: int = 0, noise: float = 0.1, given: float = GIVEN) -> None:
        self.mbit = dict(RING)
        self.nodes = NODES
        self.slower = dict.fromkeys(NODES, 1.0)
        self.seen = True
        self._random, self._noise, self._given = random.Random(seed), noise, given
        self._before = 0.0
        self._hops: dict[tuple[str, str], float] = {}
        self.speed = 0.0

    def _about(self, number: float) -> float:
        return number * self._random.uniform(1 - self._noise, 1 + self._noise)

    def step(self, pause: float = 0.0) -> Exchanged:
        """Take a step; a rank stands still for `pause` seconds on its way into the exchange."""
        whole = sum(SPEEDS[node] for node in self.nodes)
        compute = [self._about(TOKENS / whole * self.slower[node]) for node in self.nodes]
        carried = self._given * ring_share(len(self.nodes))
        hops = {
            pair: self._about(mbit) for pair, mbit in self.mbit.items() if {*pair} <= {*self.nodes}
        }
        exchange = carried * 8e-6 / min(hops.values())
        seconds = max(compute) + pause + exchange
        told = Exchanged(
            seconds,
            self._before,
            self.nodes,
            tuple(TOKENS * SPEEDS[node] / whole for node in self.nodes),
            tuple(compute),
            carried,
            self._hops
            if self.seen
            else {WHOLE: carried * 8e-6 / self._before}
            if self._before
            else {},
        )
        self._before, self._hops, self.speed = exchange, hops, TOKENS / seconds
        return told


def named(home: Home, watch: LinkWatch, steps: int) -> Iterator[SlowLinks | None]:
    for _ in range(steps):
        yield watch.observe(home.step())


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.floats(0.05, 40.0), st.sampled_from(sorted(RING)), st.integers(6, 40)
)
def test_a_link_that_becomes_slow_is_named_within_five_steps_with_what_it_carries(
    seed, mbit, pair, before
):
    home, watch = Home(seed), LinkWatch()
    assert not any(named(home, watch, before))
    home.mbit[pair] = mbit
    found = list(named(home, watch, 5))[-1]
    assert found.hops == (pair,)
    assert found.mbit == pytest.approx(mbit, rel=0.2)
    assert found.began == pytest.approx(940, rel=0.2)
    assert_names(found.text, " → ".join(pair), "when the run began", "% of a step")
    home.mbit[pair] = 940.0
    assert list(named(home, watch, 4))[-1] is None


def test_all_links_of_a_cable_that_became_slow_are_named_and_its_node_may_be_left_out():
    home, watch = Home(), LinkWatch()
    list(named(home, watch, 10))
    home.mbit |= {("oldbox", "tower"): 5.0, ("laptop", "oldbox"): 5.5}
    found = list(named(home, watch, 5))[-1]
    assert {*found.hops} == {("oldbox", "tower"), ("laptop", "oldbox")}
    assert "without oldbox" in [each.what for each in found.advice]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.3]), st.sampled_from([1e4, GIVEN, 3e7]))
def test_healthy_links_are_never_named_whatever_else_happens(seed, noise, given_bytes):
    home, watch, chance = Home(seed, noise, given_bytes), LinkWatch(), random.Random(seed)
    for _ in range(110):
        home.slower = {node: chance.choice([1.0, 1.0, 1.0, 8.0]) for node in NODES}
        home.nodes = chance.choice([NODES, NODES, NODES[:2]])  # one is away, or comes back
        pause = chance.choice([0.0] * 9 + [30.0])
        assert watch.observe(home.step(pause)) is None


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(2.0, 10.0))
def test_the_advice_predicts_what_it_leads_to(seed, mbit):
    home, watch = Home(seed, 0.02), LinkWatch()
    list(named(home, watch, 10))
    home.mbit["laptop", "oldbox"] = mbit
    found = list(named(home, watch, 6))[-1]
    predicted = {each.what: each.tokens_per_second for each in found.advice}
    assert list(predicted.values()) == sorted(predicted.values(), reverse=True)
    home.mbit["laptop", "oldbox"] = 940.0
    home.step()
    cable = next(what for what in predicted if "cable" in what)
    assert predicted[cable] == pytest.approx(home.speed, rel=0.15)
    home.nodes = ("tower", "laptop")
    home.step()
    assert predicted["without oldbox"] == pytest.approx(home.speed, rel=0.15)
    exchange = GIVEN * ring_share(3) * 8e-6 / mbit
    assert predicted["sync_every=16"] == pytest.approx(
        TOKENS / (TOKENS / 700 + exchange * 3 / 16), rel=0.15
    )


def test_a_run_that_begins_on_a_very_slow_link_has_it_named_too():
    home, watch = Home(), LinkWatch()
    home.mbit["laptop", "oldbox"] = 5.0
    found = list(named(home, watch, 5))[-1]
    assert found.hops == (("laptop", "oldbox"),)
    assert found.began is None
    assert "when the run began" not in found.text


def test_without_hops_the_exchange_is_judged_as_a_whole():
    home, watch = Home(), LinkWatch()
    home.seen = False
    assert not any(named(home, watch, 10))
    home.mbit["laptop", "oldbox"] = 5.0
    found = list(named(home, watch, 5))[-1]
    assert found.hops == ()
    assert found.mbit == pytest.approx(5, rel=0.2)
    assert_names(found.text, "hearth provision --tags verify")


def test_a_link_that_is_still_faster_than_a_home_needs_is_not_named():
    home, watch = Home(given=1e9), LinkWatch()
    home.mbit = dict.fromkeys(RING, 20_000.0)
    list(named(home, watch, 10))
    home.mbit["laptop", "oldbox"] = 2_000.0
    assert not any(named(home, watch, 10))
    home.mbit["laptop", "oldbox"] = 500.0
    assert list(named(home, watch, 5))[-1]


def test_without_hops_a_busy_processor_is_no_slow_link():
    home, watch = Home(given=3e7), LinkWatch()
    home.seen = False
    list(named(home, watch, 10))
    home.mbit = dict.fromkeys(RING, 400.0)
    assert not any(named(home, watch, 20))


def test_where_local_steps_are_no_way_out_they_are_not_advised():
    home, watch = Home(), LinkWatch()
    home.mbit["laptop", "oldbox"] = 5.0
    for _ in range(5):
        step = home.step()
        found = watch.observe(Exchanged(**{**vars(step), "may_wait": False}))
    assert not any("sync_every" in each.what for each in found.advice)


@given(st.integers(0, 14))
def test_a_rank_that_joins_goes_on_where_the_others_are(steps):
    home, watch = Home(), LinkWatch()
    list(named(home, watch, min(steps, 10)))
    home.mbit["laptop", "oldbox"] = 5.0
    list(named(home, watch, max(0, steps - 10)))
    other = LinkWatch.from_state(json.loads(json.dumps(watch.state())))
    for _ in range(3):
        step = home.step()
        assert watch.observe(step) == other.observe(step)


@pytest.mark.parametrize("hops", [{WHOLE: 0.0}, {("desk", "laptop"): 0.0}, {}])
def test_an_exchange_that_carries_nothing_names_no_link(hops):
    nodes = ("desk", "laptop") if WHOLE not in hops else ("desk",)
    still = Exchanged(0.1, 0.2, nodes, (9.0,) * len(nodes), (0.0,) * len(nodes), 0.0, hops)
    watch = LinkWatch()
    assert [watch.observe(still) for _ in range(8)] == [None] * 8
