"""Which nodes make the run faster."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.plan.planner import Fixed
from hearth.plan.prediction import (
    Contender,
    Traffic,
    choose,
    exchange_seconds,
    fastest_alone,
    predict,
)
from hearth.plan.speed import Speed
from hearth.plan.split import in_shares, seconds_of, shares_for

MIB = 1 << 20


def house(*machines: tuple[str, float, float]) -> list[Contender]:
    """Return nodes by name, seconds a row and Mbit/s; a link is as slow as its slower end."""
    return [
        Contender(
            name,
            (Speed((1,), (seconds,)),),
            {peer: min(mbit, other) for peer, _, other in machines if peer != name},
            {peer: 0.2 for peer, *_ in machines if peer != name},
        )
        for name, seconds, mbit in machines
    ]


def test_on_slow_links_the_fastest_trains_alone():
    far = house(("tower", 1.0, 1), ("laptop", 2.0, 1), ("oldbox", 4.0, 1))
    chosen = choose(far, 14, Traffic(64 * MIB))
    assert chosen.nodes == ("tower",)
    assert chosen.exchange_seconds == 0


def test_the_ring_carries_what_the_paper_says():
    # 33.6 MB over three nodes at 1 Gbit/s: 358 ms by theory.
    at_one_gbit = house(*((str(rank), 1.0, 1000) for rank in range(3)))
    assert exchange_seconds(at_one_gbit, 33_554_432) == pytest.approx(0.358, rel=0.01)


@pytest.mark.parametrize("every", [1, 16])
def test_half_the_bytes_travel_as_bf16(every):
    plain, compressed = (Traffic.of(40 * MIB, every, as_bf16) for as_bf16 in (False, True))
    assert 2 * compressed.size == plain.size
    wifi = house(("tower", 1.0, 100), ("laptop", 2.0, 100))
    often, half = (predict(wifi, 14, traffic) for traffic in (plain, compressed))
    assert half.exchange_seconds == pytest.approx(often.exchange_seconds / 2, rel=0.01)


def test_two_cards_of_one_node_come_and_go_together():
    card = Speed((1,), (1.0,))
    double = Contender("double", (card, card))
    assert predict([double], 8, Traffic(MIB)).compute_seconds == 4


contenders = st.lists(
    st.tuples(st.floats(0.1, 10), st.floats(1, 1000)), min_size=1, max_size=5
).map(lambda all_: house(*((f"n{k}", *each) for k, each in enumerate(all_))))


@given(contenders, st.integers(1, 64), st.integers(1, 1 << 28))
def test_a_choice_is_never_slower_than_the_fastest_alone(nodes, rows, size):
    chosen = choose(nodes, rows, Traffic(size))
    assert chosen.rows_per_second * 1.011 >= fastest_alone(nodes, rows).rows_per_second
    assert set(chosen.nodes) <= {each.name for each in nodes}


@given(contenders, st.integers(1, 64), st.data())
def test_shares_are_predicted_as_the_planner_divides_them(nodes, rows, data):
    share = st.integers(0, 5)
    shares = data.draw(st.lists(share, min_size=len(nodes), max_size=len(nodes)).filter(any))
    speeds = [speed for node in nodes for speed in node.ranks]
    sizes = [speed.micro_batch for speed in speeds]
    planned = Fixed(shares_for(shares, len(speeds)), sizes).plans(0, [rows])
    told = predict(nodes, rows, Traffic(0), in_shares(shares))
    assert told.compute_seconds == seconds_of(planned, speeds)
    by_their_speed = predict(nodes, rows, Traffic(0))
    assert told.rows_per_second <= by_their_speed.rows_per_second * (1 + 1e-9)


def test_a_round_is_foreseen_as_the_planner_divides_it():
    home = house(("tower", 1.0, 940), ("laptop", 2.0, 940), ("oldbox", 4.0, 940))
    rounds = predict(home, 9, Traffic(0, every=7))
    assert rounds.rows_per_second > predict(home, 9, Traffic(0)).rows_per_second
    total = sum(node.rows_per_second for node in home)
    assert rounds.rows_per_second == pytest.approx(total, rel=0.05)


def test_many_nodes_are_chosen_from_in_time():
    many = house(*((f"n{k}", 1.0 + k / 10, 940) for k in range(60)))
    assert len(choose(many, 600, Traffic(MIB)).nodes) > 30
