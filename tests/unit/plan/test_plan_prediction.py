"""Predicted times: which nodes make a run faster, the cost of sharding, a stop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.plan.planner import Fixed
from hearth.plan.prediction import (
    Contender,
    Traffic,
    choose,
    exchange_seconds,
    fastest_alone,
    fetch_seconds,
    network_cost,
    predict,
    stop_grace,
    turns,
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


LLAMA_2_7B = 2 * 6_738_415_616
"""Bytes of its weights in bf16."""


def test_seven_billion_weights_over_three_nodes_on_a_home_network_take_minutes():
    assert fetch_seconds(LLAMA_2_7B, 3) == pytest.approx(144, abs=1)
    facts = ("3 ranks", "13.5 GB of weights", "to 18.0 GB", "2 min 24 s", "1000 Mbit/s (assumed)")
    advice = ("parallel=fsdp", "micro_batch", "parallel=ddp")
    assert_names(network_cost(LLAMA_2_7B, 3), *facts, *advice)


def test_a_measured_link_takes_the_place_of_the_assumed_one():
    assert_names(network_cost(LLAMA_2_7B, 3, 94.2), "25 min 26 s", "94 Mbit/s")
    assert_names(network_cost(3 * 10**6, 2, 9400), "to 3.0 MB", "0 s", "9400 Mbit/s")
    assert "assumed" not in network_cost(LLAMA_2_7B, 3, 94.2)


@given(st.integers(1, 200), st.integers(1, 16), st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_ranks_take_as_many_turns_as_their_planner_makes(rows, micro_batch, shares):
    (planned,) = Fixed(shares, [micro_batch] * len(shares), together=True).plans(0, [rows])
    assert turns(rows, micro_batch, shares, len(shares)) == planned.turns


@given(st.floats(0, 1e5), st.integers(0, 10**12), st.floats(0, 1e5))
def test_a_stop_waits_for_a_step_a_checkpoint_on_a_slow_disk_and_an_evaluation(
    seconds, learned, judging
):
    grace = stop_grace(seconds, measured=True, learned=learned, judging=judging)
    assert grace > seconds + judging + 4 * learned / 60e6 + 29
    assert grace >= stop_grace(seconds, measured=True) >= 60
    assert stop_grace(seconds, learned=learned, judging=judging) == max(grace, 900)


def test_a_stop_waits_seven_minutes_for_a_billion_weights_that_all_learn():
    assert stop_grace(1.0, measured=True, learned=4 * 10**9) == 3 + 30 + 400
    assert stop_grace(1.0, measured=True, learned=20_000_000, judging=10) == 60
    assert stop_grace(1.0, measured=True, judging=100) == 3 + 30 + 100
