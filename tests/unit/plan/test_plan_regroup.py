"""The plans of a group that ranks leave and join."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from hearth.plan.follow import AdaptivePlanner
from hearth.plan.planner import Fixed, Known, Replayed
from hearth.plan.speed import UNKNOWN, Speed
from hearth.plan.split import Plan

TOWER, LAPTOP, OLDBOX = Speed((1, 2), (0.5, 0.9)), Speed((1,), (1.1,)), Speed((1,), (2.0,))
HOME = [TOWER, LAPTOP, OLDBOX]


@st.composite
def speeds(draw) -> Speed:
    """A measured curve with up to three sizes."""
    count = draw(st.integers(1, 3))
    seconds = st.floats(0.01, 10) | st.integers(1, 3)
    return Speed(tuple(2**k for k in range(count)), tuple(draw(seconds) for _ in range(count)))


@st.composite
def groups(draw, most: int = 4) -> tuple[list[Speed], tuple[int, ...]]:
    """The speeds of a layout's ranks, and those of its ranks that are in the group."""
    layout = draw(st.lists(speeds(), min_size=1, max_size=most))
    ranks = st.integers(0, len(layout) - 1)
    return layout, tuple(sorted(draw(st.sets(ranks, min_size=1))))


slowdowns = st.dictionaries(st.integers(0, 3), st.floats(0.5, 20))


def take(planner, rows=24, slowness=(1, 1, 1), steps=1):
    """Take these steps with ranks this slow; return the plan of the last."""
    for step in range(steps):
        plans = planner.plans(step, [rows])
        own = plans[0].rows
        seconds = [HOME[rank].of_rows(own[rank]) * slowness[rank] for rank in range(3)]
        planner.observe(plans, own, seconds)
    return plans[0]


def taught(planner) -> Known:
    """Return the knowledge of a planner as it arrives at a rank that joins."""
    return TypeAdapter(Known).validate_python(json.loads(json.dumps(asdict(planner.known))))


def join(group, layout, members):
    """Return the planner of a rank that joins `group`, with the knowledge of one in it."""
    known = taught(group)
    joined = AdaptivePlanner([UNKNOWN] * len(layout))
    joined.regroup(members, dict(enumerate(layout)) | known.speeds, known.slowness)
    for rank, size in known.limits.items():
        joined.fits_no_more_than(rank, size)
    return joined


@given(groups(), slowdowns, st.integers(1, 30), st.integers(1, 5))
def test_all_rows_go_to_the_members_of_the_group(group, slowness, rows, steps):
    layout, members = group
    absent = set(range(len(layout))) - set(members)
    by_speed = AdaptivePlanner(layout)
    by_speed.regroup(members, dict(enumerate(layout)), slowness)
    recorded = Plan((rows, *[1] * (len(layout) - 1)), (1,) * len(layout))
    total = sum(recorded.rows)
    planners = [
        (by_speed, rows),
        (Fixed([1] * len(layout), [2] * len(layout)), rows),
        (Replayed("night", [(0, recorded)], len(layout), steps), total),
    ]
    for planner, size in planners:
        planner.regroup(members, dict(enumerate(layout)), slowness)
        for plan in (*planner.plans(0, [size] * steps), planner.share(size)):
            assert len(plan.rows) == len(plan.micro_batch) == len(layout)
            assert sum(plan.rows) == size
            assert not any(plan.rows[rank] for rank in absent)
            assert min(plan.micro_batch) >= 1


@given(groups(most=3), slowdowns, st.integers(1, 8))
def test_no_division_among_the_members_ends_sooner(group, slowness, rows):
    layout, members = group
    planner = AdaptivePlanner(layout)
    planner.regroup(members, dict(enumerate(layout)), slowness)
    times = {rank: layout[rank].times(rows) * slowness.get(rank, 1) for rank in members}

    def ends(counts):
        return max(times[rank][count] for rank, count in zip(members, counts, strict=True))

    options = itertools.product(range(rows + 1), repeat=len(members))
    best = min(ends(option) for option in options if sum(option) == rows)
    (plan,) = planner.plans(0, [rows])
    assert ends([plan.rows[rank] for rank in members]) == pytest.approx(best)


@given(groups(), slowdowns, st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_a_regroup_to_the_same_group_with_the_same_knowledge_changes_no_plan(
    group, slowness, sizes
):
    layout, members = group
    planner = AdaptivePlanner(layout)
    planner.regroup(members, dict(enumerate(layout)), slowness)
    before, known = planner.plans(0, sizes), planner.known
    planner.regroup(members, known.speeds, known.slowness)
    assert planner.plans(0, sizes) == before
    assert planner.known == known


@given(st.floats(1, 8), st.integers(1, 4), st.sampled_from([None, 1, 2]))
def test_a_rank_that_joins_makes_the_plans_of_the_others(slow, steps, limit):
    members = (0, 1, 2)
    group = AdaptivePlanner(HOME)
    group.regroup((0, 2), dict(enumerate(HOME)), {})
    take(group, slowness=(slow, 1, 1), steps=steps)
    if limit:
        group.fits_no_more_than(0, limit)
    joined = join(group, HOME, members)
    group.regroup(members, group.known.speeds, group.known.slowness)
    assert joined.known == group.known
    for _ in range(3):
        assert take(joined, slowness=(slow, 1, 2)) == take(group, slowness=(slow, 1, 2))


def test_a_rank_that_comes_back_is_as_slow_as_it_was():
    planner = AdaptivePlanner(HOME)
    take(planner, slowness=(4, 1, 1), steps=5)
    slow = take(planner, slowness=(4, 1, 1))
    known = planner.known
    planner.regroup((1, 2), known.speeds, known.slowness)
    assert take(planner, steps=4).rows[0] == 0
    assert planner.slowness[0] == pytest.approx(4)
    known = planner.known
    planner.regroup((0, 1, 2), known.speeds, known.slowness)
    assert take(planner, slowness=(4, 1, 1)).rows == slow.rows


def test_a_memory_that_was_too_small_stays_too_small():
    adaptive, fixed = AdaptivePlanner(HOME), Fixed((1, 1, 1), (None, None, 4))
    fixed.regroup((0, 1, 2), dict(enumerate(HOME)), {})
    assert fixed.share(9).micro_batch == (2, 1, 4)
    for planner in (adaptive, fixed):
        planner.fits_no_more_than(0, 1)
        planner.regroup((1, 2), dict(enumerate(HOME)), {})
        planner.fits_no_more_than(2, 3)
        planner.regroup((0, 1, 2), dict(enumerate(HOME)), {})
        assert planner.share(9).micro_batch[0] == 1
        assert planner.known.limits == {0: 1, 2: 3}
    assert fixed.share(9).micro_batch == (1, 1, 3)


def test_absent_ranks_are_not_probed():
    planner = AdaptivePlanner(HOME)
    planner.regroup((0, 2), dict(enumerate(HOME)), {2: 1000.0})
    probed = [planner.plans(0, [4])[0].rows for _ in range(3)]
    assert probed == [(4, 0, 0)] * 3
    plans = {take(planner, rows=4, slowness=(1, 1, 1000)).rows for _ in range(60)}
    assert plans == {(4, 0, 0), (3, 0, 1)}


def test_a_group_may_begin_with_a_part_of_the_layout():
    planner = AdaptivePlanner([UNKNOWN] * 3)
    planner.regroup((1, 2), {1: LAPTOP, 2: OLDBOX}, {})
    assert take(planner).rows[0] == 0
    planner.regroup((0, 1, 2), {0: TOWER} | planner.known.speeds, planner.known.slowness)
    assert take(planner).rows == AdaptivePlanner(HOME).plans(0, [24])[0].rows
    with pytest.raises(ValueError, match=r"\[0, 1\].*\[1\]"):
        planner.regroup((0, 1), {1: LAPTOP}, {})


def test_what_the_first_step_of_a_group_finds_not_ready_moves_nothing():
    planner = AdaptivePlanner(HOME)
    take(planner, steps=9)
    known = planner.known
    planner.regroup((0, 1), known.speeds, known.slowness)
    plans = planner.plans(0, [24] * 8)
    rows = [sum(plan.rows[rank] for plan in plans) for rank in range(3)]
    planner.observe(plans, rows, [60.0, *(HOME[rank].of_rows(rows[rank]) for rank in (1, 2))])
    assert planner.plans(8, [24] * 8) == plans


def test_shares_are_those_of_the_members():
    planner = Fixed((3, 2, 1, 0), (1, 1, 1, 1))
    planner.regroup((0, 2), {}, {})
    assert planner.share(8).rows == (6, 0, 2, 0)
    planner.regroup((3,), {}, {})
    assert planner.share(8).rows == (0, 0, 0, 8)
    planner.regroup((0, 1, 2, 3), {}, {})
    assert planner.share(6).rows == (3, 2, 1, 0)


def test_ranks_that_were_absent_from_a_record_stay_idle():
    whole, without = Plan((6, 3, 3), (2, 1, 1)), Plan((8, 0, 4), (2, 1, 1))
    planner = Replayed("night", [(0, whole), (2, without)], ranks=3, steps=4)
    assert planner.plans(0, [12] * 4) == (whole, whole, without, without)


def test_a_smaller_team_divides_the_rows_of_a_record_in_proportion():
    whole, without = Plan((6, 3, 3), (2, 1, 1)), Plan((0, 9, 3), (2, 1, 1))
    planner = Replayed("night", [(0, whole), (2, without)], ranks=3, steps=4)
    planner.regroup((0, 2), {}, {})
    first, _, second, _ = planner.plans(0, [12] * 4)
    assert first == Plan((8, 0, 4), (2, 1, 1))
    assert second == Plan((0, 0, 12), (2, 1, 1))
    assert planner.share(9).rows == (6, 0, 3)
    planner.regroup((0,), {}, {})
    assert planner.plans(2, [12])[0].rows == (12, 0, 0)
    planner.regroup((0, 1, 2), {}, {})
    assert planner.plans(0, [12]) == (whole,)


FOUR = [*HOME, Speed((1, 2, 4), (0.3, 0.5, 0.9))]


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 3), min_size=1),
            st.integers(0, 3),
            st.lists(st.floats(0.5, 20), min_size=4, max_size=4),
            st.sampled_from([None, (3, 1), (0, 1), (3, 2)]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_all_members_make_the_same_plans_whoever_left_and_joined_before(history):
    planners: dict[int, AdaptivePlanner] = {}
    for members, choice, slowness, too_large in history:
        members = sorted(members)
        stayed = [rank for rank in members if rank in planners]
        # A rank that left has lost all that it knew.
        planners = {rank: planners.get(rank) or AdaptivePlanner([UNKNOWN] * 4) for rank in members}
        measured = {rank: FOUR[rank] for rank in members}
        known = taught(planners[stayed[choice % len(stayed)]]) if stayed else Known()
        for planner in planners.values():
            planner.regroup(members, measured | dict(known.speeds), known.slowness)
            for rank, size in known.limits.items():
                planner.fits_no_more_than(rank, size)
        for step in range(4):
            plans = {planner.plans(step, [24, 20]) for planner in planners.values()}
            assert len(plans) == 1
            (steps,) = plans
            rows = [sum(plan.rows[rank] for plan in steps) for rank in range(4)]
            assert sum(rows) == 44
            times = [FOUR[rank].of_rows(rows[rank]) * slowness[rank] for rank in range(4)]
            for planner in planners.values():
                if too_large and step == 1:
                    planner.fits_no_more_than(*too_large)
                planner.observe(steps, rows, times)
        assert len({planner.share(31) for planner in planners.values()}) == 1
