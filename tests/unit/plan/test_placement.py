"""The placement of layers: the fastest one that fits, compared with brute force."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.facts import assert_names, refuses

from hearth.base.errors import ModelError
from hearth.plan.layer_counts import Step
from hearth.plan.makespan import in_flight, least_makespans, makespan
from hearth.plan.place import crowded, pipeline, place, shortage
from hearth.plan.placement import Home, LayerSpeed, Placement, Stage
from hearth.plan.rank_orders import every_order, local_search
from hearth.plan.speed import Speed, micro_batches

_TIMES = st.floats(0.01, 5.0)
_FILLED = 0.95


def _constant(seconds):
    return Speed((1,), (seconds,))


def _home(ranks, links, activation=0.1, layer=1.0, embedding=0.5, head=0.7):
    """Return ranks given as (layer, embedding, head, room), with a linear need of memory."""

    def need(rank, layers, *, first, last, in_flight, rows):
        held = layers * (layer + activation * in_flight * rows)
        return held + embedding * first + head * last

    return Home(
        [f"node{number}" for number in range(len(ranks))],
        [LayerSpeed(*map(_constant, each[:3])) for each in ranks],
        [each[3] for each in ranks],
        links,
        need,
    )


@st.composite
def _homes(draw, most=3, least=1):
    """Return a home of up to `most` ranks; a node may have several."""
    count = draw(st.integers(least, most))
    ranks = [
        (*draw(st.tuples(_TIMES, _TIMES, _TIMES)), draw(st.floats(0, 9))) for _ in range(count)
    ]
    links = [[0 if a == b else draw(st.floats(0, 1)) for b in range(count)] for a in range(count)]
    nodes = [f"node{draw(st.integers(0, number))}" for number in range(count)]
    return replace(_home(ranks, links), nodes=nodes)


def _takes_whole_nodes(home, placement):
    taken = {home.nodes[rank] for rank in placement.ranks}
    return all(rank in placement.ranks for rank, node in enumerate(home.nodes) if node in taken)


def _fits(home, placement, micro_batches, rows):
    stages = placement.stages
    return all(
        home.need(
            stage.rank,
            len(stage.layers),
            first=position == 0,
            last=position == len(stages) - 1,
            in_flight=in_flight(micro_batches, position, len(stages)),
            rows=rows,
        )
        <= home.rooms[stage.rank]
        for position, stage in enumerate(stages)
    )


def _every_placement(home, layers):
    ranks = len(home.nodes)
    for count in range(1, min(ranks, layers) + 1):
        for order in itertools.permutations(range(ranks), count):
            for cuts in itertools.combinations(range(1, layers), count - 1):
                ends = (0, *cuts, layers)
                placement = Placement.of(order, [b - a for a, b in itertools.pairwise(ends)])
                if _takes_whole_nodes(home, placement):
                    yield placement


def _by_hand(home, placement, micro_batches):
    """Return the seconds of a step with micro-batches of one row."""
    stages = []
    for position, stage in enumerate(placement.stages):
        speed = home.speeds[stage.rank]
        seconds = len(stage.layers) * speed.layer.seconds[0]
        seconds += speed.embedding.seconds[0] * (position == 0)
        seconds += speed.head.seconds[0] * (position == len(placement.stages) - 1)
        stages.append(seconds)
    pairs = list(itertools.pairwise(placement.ranks))
    there, back = [home.links[a][b] for a, b in pairs], [home.links[b][a] for a, b in pairs]
    return makespan(stages, there, back, micro_batches)


@settings(max_examples=60, deadline=None)
@given(_homes(), st.integers(1, 7), st.integers(1, 6))
def test_hardly_any_placement_that_fits_is_faster(home, layers, rows):
    for part in (_FILLED, 1):  # all of the memory is filled only where a part of it is too small
        room = replace(home, rooms=[part * each for each in home.rooms])
        possible = [
            _by_hand(room, each, rows)
            for each in _every_placement(home, layers)
            if _fits(room, each, rows, 1)
        ]
        if possible:
            break
    else:
        with pytest.raises(ModelError):
            place(home, layers, rows, micro_batch=1)
        return
    found = place(home, layers, rows, micro_batch=1)
    assert _fits(room, found.placement, rows, 1)
    assert found.step_seconds < 1.05 * min(possible)
    assert found.step_seconds == pytest.approx(_by_hand(home, found.placement, rows))


@settings(max_examples=40, deadline=None)
@given(_homes(most=4), st.integers(4, 12), st.integers(1, 8))
def test_the_search_for_many_ranks_is_nearly_as_good_as_all_orders(home, layers, rows):
    step = Step(home, layers, rows, 1)
    best, found = every_order(step), local_search(step)
    assert (found is None) == (best is None)
    if best:
        assert found.seconds <= best.seconds * 1.5


@settings(max_examples=40, deadline=None)
@given(_homes(most=8, least=6), st.integers(4, 12))
def test_many_ranks_are_taken_by_whole_nodes(home, layers):
    try:
        found = place(home, layers, 8, micro_batch=1)
    except ModelError:
        return
    assert _takes_whole_nodes(home, found.placement)
    assert _fits(home, found.placement, 8, 1)


def test_many_ranks_are_placed_and_slow_ones_left_out():
    ranks = [(1.0, 0.1, 0.1, 9)] * 8 + [(400.0, 0.1, 0.1, 9)] * 2
    home = _home(ranks, [[0.001] * 10] * 10)
    found = place(home, 24, 32, micro_batch=1)
    assert not {8, 9} & set(found.placement.ranks)
    assert max(found.stage_seconds) == pytest.approx(3.1)


def test_a_rank_that_makes_it_slower_is_left_out():
    home = _home([(1.0, 0.1, 0.1, 99), (50.0, 0.1, 0.1, 99)], [[0.0] * 2] * 2)
    assert place(home, 10, 8).placement.stages == (Stage(0, range(10)),)


def test_a_node_that_makes_it_slower_is_taken_if_all_nodes_were_asked_for():
    home = _home([(1.0, 0.1, 0.1, 99), (50.0, 0.1, 0.1, 99)], [[0.0] * 2] * 2)
    assert len(place(home, 10, 8, keep_all=True).placement.stages) == 2


def test_a_node_takes_part_with_all_of_its_ranks_or_none():
    ranks = [(1.0, 0.1, 0.1, 99), (1.0, 0.1, 0.1, 99), (50.0, 0.1, 0.1, 99)]
    home = replace(_home(ranks, [[0.0] * 3] * 3), nodes=["desk", "attic", "attic"])
    assert place(home, 10, 8).placement.ranks == (0,)
    home = replace(home, nodes=["desk", "desk", "attic"])
    assert set(place(home, 10, 8).placement.ranks) == {0, 1}


def test_a_slow_rank_is_taken_where_the_others_have_no_room():
    home = _home([(1.0, 0.1, 0.1, 8), (50.0, 0.1, 0.1, 99)], [[0.0] * 2] * 2)
    found = place(home, 10, 8)
    assert {stage.rank for stage in found.placement.stages} == {0, 1}


def test_a_rank_is_not_filled_up_where_another_has_room():
    exactly_four = 4 * (1 + 0.1) + 0.5
    ranks = [(0.1, 0.01, 0.01, exactly_four), (1.0, 0.01, 0.01, 99)]
    home = _home(ranks, [[0, 0], [0, 0]], embedding=0.5, head=0.5)
    layers = {stage.rank: len(stage.layers) for stage in place(home, 6, 1).placement.stages}
    assert layers == {0: 3, 1: 3}


def test_a_costly_head_goes_where_it_takes_least_time():
    home = _home([(1.0, 0.1, 0.5, 99), (1.0, 0.1, 9.0, 99)], [[0.0] * 2] * 2)
    assert place(home, 8, 8).placement.ranks == (1, 0)


def test_the_order_avoids_a_slow_link():
    links = [[0, 9, 0.1], [9, 0, 0.1], [0.1, 0.1, 0]]
    home = _home([(1.0, 0.1, 0.1, 6)] * 3, links)
    assert place(home, 9, 8).placement.ranks[1] == 2


def test_a_link_that_is_slow_for_gradients_only_sets_the_pace_too():
    home = _home([(0.1, 0.1, 0.1, 9)] * 2, [[0, 0], [0.5, 0]])
    found = pipeline(home, Placement.of([0, 1], [1, 1]), rows=16, micro_batch=1)
    assert found.step_seconds > 8


def test_faster_micro_batches_are_taken_if_the_pipeline_gains_by_them():
    speed = Speed((1, 2, 4), (1.0, 1.1, 1.3))
    home = _home([(1.0, 0.1, 0.1, 1e9)] * 2, [[0.0] * 2] * 2)
    home = Home(
        home.nodes, [LayerSpeed(speed, speed, speed)] * 2, home.rooms, home.links, home.need
    )
    found = place(home, 8, 32)
    assert found.micro_batch == 4
    same = pipeline(home, found.placement, 32, 4)
    assert same == found


@pytest.mark.parametrize(("rows", "typed"), [(32, 3), (17, 8), (10, 4), (5, 9)])
def test_micro_batches_of_a_given_size_are_planned_as_they_are_computed(rows, typed):
    home = _home([(1.0, 0.1, 0.1, 1e9)] * 2, [[0.0] * 2] * 2)
    computed = micro_batches(rows, typed)
    found = place(home, 8, rows, micro_batch=typed)
    assert (found.micro_batch, found.micro_batches) == (max(computed), len(computed))
    assert found.rows_per_second == pytest.approx(rows / found.step_seconds)
    assert pipeline(home, found.placement, rows, typed) == found


@pytest.mark.parametrize(("room", "size"), [(1e9, 8), (11.0, 2), (1.0, 1)])
def test_a_given_placement_has_the_fastest_micro_batch_that_fits(room, size):
    same = Speed((1, 2, 8), (1.0, 1.0, 1.0))  # the more rows at once, the better
    home = _home([(1.0, 0.1, 0.1, room)] * 2, [[0.0] * 2] * 2, activation=0.5, head=0.5)
    home = replace(home, speeds=[LayerSpeed(same, same, same)] * 2)
    found = pipeline(home, Placement.of((0, 1), (2, 2)), 16)
    assert found.micro_batch == size
    assert bool(crowded(home, found)) is (room < 2)


@settings(max_examples=60, deadline=None)
@given(_homes(), st.data())
def test_a_rank_is_at_no_end_of_the_model_that_did_not_fit_it(home, data):
    lacking = data.draw(st.dictionaries(st.sampled_from(["embedding", "head"]), st.integers(0, 2)))
    speeds = list(home.speeds)
    for end, rank in lacking.items():
        if rank < len(speeds):
            speeds[rank] = replace(speeds[rank], **{end: None})
    home = replace(home, speeds=speeds)
    allowed = [
        each
        for each in _every_placement(home, 4)
        if speeds[each.ranks[0]].embedding and speeds[each.ranks[-1]].head
    ]
    if not any(_fits(home, each, 8, 1) for each in allowed):
        with pytest.raises(ModelError):
            place(home, 4, 8, 1)
        return
    found = place(home, 4, 8, 1)
    assert found.placement in allowed
    assert _fits(home, found.placement, 8, 1)


def test_a_head_that_fits_with_fewer_rows_limits_them_only_where_it_is():
    many, one = Speed((1, 4), (1.0, 1.2)), Speed((1,), (0.1,))
    home = _home([(1.0, 0.1, 0.1, 1e9)] * 2, [[0.0] * 2] * 2)
    home = replace(home, speeds=[LayerSpeed(many, many, many), LayerSpeed(many, many, one)])
    found = place(home, 8, 32)
    assert (found.micro_batch, found.placement.ranks[-1]) == (4, 0)
    given = pipeline(home, Placement.of((0, 1), (4, 4)), 32, 4)
    assert crowded(home, given)


def test_the_slowest_stage_never_waits_less_than_not_at_all():
    home = _home([(0.1, 0.1, 0.3, 1e9)] * 3, [[0.0] * 3] * 3)
    for rows in range(1, 50):
        assert f"{pipeline(home, Placement.of((0,), (3,)), rows, 1).bubble:.0%}" == "0%"


def test_more_ranks_than_layers_lack_no_memory():
    home = _home([(1.0, 0.1, 0.1, 99)] * 3, [[0.0] * 3] * 3)
    assert shortage(home, 2, 8) == ""
    assert len(place(home, 2, 8).placement.stages) <= 2
    with pytest.raises(ModelError, match="each of 3 ranks"):
        place(home, 2, 8, keep_all=True)


def test_one_rank_is_no_pipeline():
    home = _home([(1.0, 0.1, 0.1, 99)], [[0.0]])
    with pytest.raises(ModelError, match="two ranks"):
        place(home, 4, 8, least=2)


def test_more_rows_at_once_than_fit_are_refused_with_fewer_advised():
    home = _home([(1.0, 0.1, 0.1, 9.0)] * 2, [[0.0] * 2] * 2, activation=1.0, head=0.5)
    assert place(home, 3, 17, micro_batch=1)
    with refuses(ModelError, "6 rows", "micro_batch"):
        place(home, 3, 17, micro_batch=8)


def test_what_no_placement_holds_is_refused_with_the_memory_that_lacks():
    gib = 1 << 30
    home = _home([(1.0, 0.1, 0.1, 4.0 * gib)] * 2, [[0.0] * 2] * 2, 0, gib, 0, 0)
    with pytest.raises(ModelError, match=r"8 of its 10 layers.*4 on node1.* 2 .*2\.0 GiB"):
        place(home, 10, 8)


def test_a_node_with_a_card_too_small_for_a_layer_holds_nothing():
    ranks = [(1.0, 0.1, 0.1, 99), (1.0, 0.1, 0.1, 0.5)]
    home = replace(_home(ranks, [[0.0] * 2] * 2), nodes=["box", "box"])
    assert_names(shortage(home, 4, 8), "0 of its 4 layers", "box rank 1")
    with pytest.raises(ModelError):
        place(home, 4, 8)


def test_neighbours_of_a_stage():
    placement = Placement.of([2, 0], [5, 3])
    assert placement.stages == (Stage(2, range(5)), Stage(0, range(5, 8)))
    assert [placement.position(rank) for rank in range(3)] == [1, None, 0]
    assert [placement.previous(rank) for rank in range(3)] == [2, None, None]
    assert [placement.next(rank) for rank in range(3)] == [None, None, 0]


@pytest.mark.parametrize(
    "stages",
    [
        (Stage(0, range(2)),),
        (Stage(0, range(0)), Stage(1, range(3))),
        (Stage(0, range(2)), Stage(0, range(2, 3))),
        (Stage(0, range(1, 3)), Stage(1, range(1))),
    ],
)
def test_a_placement_has_each_layer_once_in_order(stages):
    with pytest.raises(ValueError, match="layer"):
        Placement(stages, 3)


_SECONDS = st.floats(0.01, 2.0)


@st.composite
def _steps(draw):
    stages = draw(st.lists(_SECONDS, min_size=1, max_size=5))
    there, back = ([draw(st.floats(0, 0.5)) for _ in stages[1:]] for _ in range(2))
    return stages, there, back, draw(st.integers(1, 12))


@given(_steps())
def test_a_step_takes_no_less_than_its_stages_and_links_and_no_more_than_one_after_the_other(step):
    stages, there, back, micro_batches = step
    seconds = makespan(*step)
    (least,) = least_makespans(np.array([stages]), there, back, micro_batches)
    assert least <= seconds * (1 + 1e-9)
    assert seconds <= micro_batches * sum([*stages, *there, *back]) * (1 + 1e-9)


@given(_steps())
def test_one_micro_batch_passes_through_all_stages_and_back(step):
    stages, there, back, _ = step
    assert makespan(stages, there, back, 1) == pytest.approx(sum([*stages, *there, *back]))


@given(_SECONDS, st.integers(1, 5), st.integers(1, 12))
def test_equal_stages_without_links_take_what_the_formula_says(seconds, stages, micro_batches):
    links = [0.0] * (stages - 1)
    found = makespan([seconds] * stages, links, links, micro_batches)
    assert found == pytest.approx((micro_batches + stages - 1) * seconds)


def test_a_step_is_shorter_with_the_slowest_stage_first():
    ahead, behind = ([1.0, 0.8, 0.8], [0.8, 0.8, 1.0])
    assert makespan(behind, [0, 0], [0, 0], 16) == pytest.approx(16 + 1.6)
    assert makespan(ahead, [0, 0], [0, 0], 16) < 1.03 * 16


@pytest.mark.parametrize(("there", "back"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
def test_a_link_that_is_slow_in_one_direction_or_both_sets_the_pace(there, back):
    assert makespan([0.1, 0.1], [there], [back], 16) == pytest.approx(0.2 + there + back + 15)


def test_an_early_stage_holds_more_micro_batches_but_no_more_than_there_are():
    assert [in_flight(16, position, 3) for position in range(3)] == [5, 3, 1]
    assert [in_flight(2, position, 3) for position in range(3)] == [2, 2, 1]
