"""Messages on waits: long ones, once, and their end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hearth.notify.event import speaker
from hearth.notify.watch import PATIENCE, GoesOn, Waits, WaitWatch

MOMENTS = st.lists(
    st.tuples(
        st.floats(0.1, 100), st.booleans(), st.sampled_from([(), ("laptop",), ("laptop", "desk")])
    ),
    max_size=60,
)


def test_a_node_that_is_back_within_two_minutes_is_no_message():
    watch = WaitWatch()
    assert watch.observe(0, False, ("laptop",)) is None
    assert watch.observe(119, False, ("laptop",)) is None
    assert watch.observe(121, True, ()) is None
    assert watch.observe(200, False, ("laptop",)) is None


def test_a_long_wait_is_told_once_and_so_is_its_end():
    watch = WaitWatch()
    for now in (0.0, 60.0):
        assert watch.observe(now, False, ("laptop", "oldbox")) is None
    assert watch.observe(120, False, ("laptop",)) == Waits(("laptop",), 0)
    for now in (121.0, 5000.0):
        assert watch.observe(now, False, ("laptop",)) is None
    assert watch.observe(5001, False, ()) is None  # it is back, and its ranks load
    assert watch.observe(5060, True, ()) == GoesOn(("laptop",), 0)
    assert watch.observe(5061, True, ()) is None


def test_ranks_that_load_are_no_wait_for_a_node():
    watch = WaitWatch()
    assert [watch.observe(now, False, ()) for now in range(0, 2000, 10)] == [None] * 200
    assert watch.observe(2000, False, ("laptop",)) is None  # it counts from here


@given(MOMENTS)
def test_messages_take_turns_and_none_comes_before_its_time(moments):
    watch, now, waiting_since, last = WaitWatch(), 0.0, None, "trains"
    for passed, trains, missing in moments:
        now += passed
        if trains or (not missing and last == "trains"):
            waiting_since = None
        elif waiting_since is None:
            waiting_since = now
        change = watch.observe(now, trains, () if trains else missing)
        if isinstance(change, Waits):
            assert last == "trains"
            assert waiting_since is not None
            assert now - waiting_since >= PATIENCE
            last = "waits"
        elif isinstance(change, GoesOn):
            assert (last, trains) == ("waits", True)
            last = "trains"


@given(st.permutations(["a", "b", "c"]), st.sets(st.sampled_from("abc")))
def test_of_the_nodes_that_are_there_one_speaks(nodes, absent):
    there = [node for node in nodes if node not in absent]
    assert speaker(tuple(nodes), absent) == (there[0] if there else "")
