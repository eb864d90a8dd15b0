"""The turns of the runs that wait in a queue: one order, without circles."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from hearth.supervisor.queue import QueueEntry, ahead_of, ordinal, why_not_yet

NOW = datetime(2026, 11, 26, 22, 30, tzinfo=ZoneInfo("Europe/Berlin"))


def why(run: str, *entries: QueueEntry, holder: str = "", now: datetime = NOW) -> str:
    own = next(entry for entry in entries if entry.run == run)
    return why_not_yet(own, entries, holder, now)


def test_on_a_free_node_with_an_empty_queue_it_is_the_runs_turn():
    assert why("a", QueueEntry("a", 5.0)) == ""


def test_a_run_waits_behind_the_one_that_has_the_node():
    assert (
        why("a", QueueEntry("a", 5.0), holder="evening") == "waits behind evening, 1st in the queue"
    )


def test_a_run_waits_behind_those_before_it_and_behind_nobody_after_it():
    line = (QueueEntry("a", 5.0), QueueEntry("b", 3.0), QueueEntry("c", 4.0))
    assert why("b", *line) == ""
    assert why("c", *line) == "waits behind b, 2nd in the queue"
    assert why("a", *line, holder="evening") == "waits behind c, 3rd in the queue"


def test_runs_with_the_same_position_are_served_by_their_names():
    line = (QueueEntry("b", 5.0), QueueEntry("a", 5.0))
    assert why("a", *line) == ""
    assert why("b", *line) == "waits behind a, 2nd in the queue"


def test_a_run_whose_start_lies_ahead_tells_its_time_and_holds_nobody_up():
    late = QueueEntry("late", 1.0, at=NOW + timedelta(minutes=30))
    assert why("late", late, QueueEntry("a", 2.0)) == "starts at 23:00"
    assert why("a", late, QueueEntry("a", 2.0)) == ""
    assert why("late", late, holder="evening") == "starts at 23:00"


def test_when_its_start_has_come_a_run_waits_in_its_place_like_any_other():
    late = QueueEntry("late", 1.0, at=NOW)
    assert why("a", late, QueueEntry("a", 2.0)) == "waits behind late, 2nd in the queue"
    assert why("late", late, QueueEntry("a", 2.0)) == ""
    assert why("late", late, holder="evening") == "waits behind evening, 1st in the queue"


def test_a_run_whose_supervisor_is_gone_for_good_holds_nobody_up():
    assert why("a", QueueEntry("dead", 1.0, alive=False), QueueEntry("a", 2.0)) == ""


def test_a_run_that_has_begun_on_another_node_goes_first_whatever_its_place():
    line = (QueueEntry("b", 1.0), QueueEntry("a", 5.0, begun=True))
    assert why("a", *line) == ""
    assert why("b", *line) == "waits behind a, 2nd in the queue"
    assert ahead_of(line[1], line, NOW) == []


def test_a_run_that_has_taken_the_node_is_not_counted_twice():
    line = (QueueEntry("evening", 1.0), QueueEntry("a", 2.0))
    assert why("a", *line, holder="evening") == "waits behind evening, 1st in the queue"
    assert why("evening", *line, holder="evening") == ""


def test_places_have_their_endings():
    places = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th"}
    assert {number: ordinal(number) for number in places} == places
    assert [ordinal(number) for number in (21, 102, 111, 113)] == [
        "21st",
        "102nd",
        "111th",
        "113th",
    ]


# The whole house


@dataclass
class Availability:
    """Nodes with runs that take their turns as supervisors do: each looks by itself, at any time.

    `left` are the seconds of work of each run; one that has none left has ended.
    """

    nodes_of: dict[str, frozenset[str]]
    left: dict[str, int]
    entries: dict[str, QueueEntry]
    now: datetime = NOW
    holders: dict[str, str] = field(default_factory=dict)  # by node
    served: list[str] = field(default_factory=list)

    def queue(self, node: str) -> list[QueueEntry]:
        return [each for run, each in self.entries.items() if node in self.nodes_of[run]]

    def begun(self, run: str) -> bool:
        return run in self.served

    def inspect(self, run: str, node: str) -> None:
        """Let the supervisor of a run on a node take its turn, or give it back."""
        if run not in self.entries:
            return
        holds, own = self.holders.get(node) == run, self.entries[run]
        if holds and ahead_of(own, self.queue(node), self.now):
            del self.holders[node]
        elif not holds and not why_not_yet(
            own, self.queue(node), self.holders.get(node, ""), self.now
        ):
            self.holders[node] = run
        if all(self.holders.get(each) == run for each in self.nodes_of[run]):
            self.served.append(run)
            del self.entries[run]

    def pass_time(self) -> None:
        self.now += timedelta(minutes=10)
        for run in {*self.holders.values()} & {*self.served}:
            self.left[run] -= 1
            if self.left[run] <= 0:  # finished or failed, which is the same to the others
                self.holders = {node: its for node, its in self.holders.items() if its != run}

    def remove(self, run: str) -> None:
        if self.entries.pop(run, None):
            self.holders = {node: its for node, its in self.holders.items() if its != run}

    def move(self, run: str, position: float) -> None:
        if run in self.entries:
            self.entries[run] = replace(self.entries[run], position=position)


RUNS, NODES = "abcdef", ("tower", "laptop", "oldbox")


@st.composite
def houses(draw) -> Availability:
    runs = draw(st.lists(st.sampled_from(RUNS), min_size=2, unique=True))
    subsets = st.frozensets(st.sampled_from(NODES), min_size=1)
    starts = st.none() | st.integers(0, 30).map(lambda n: NOW + timedelta(minutes=10 * n))
    positions = st.integers(1, 4).map(float)  # several runs may have the same
    return Availability(
        {run: draw(subsets) for run in runs},
        {run: draw(st.integers(1, 5)) for run in runs},
        {run: QueueEntry(run, draw(positions), draw(starts)) for run in runs},
    )


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("look"), st.sampled_from(RUNS), st.sampled_from(NODES)),
        st.tuples(st.just("move"), st.sampled_from(RUNS), st.floats(0, 9)),
        st.tuples(st.just("remove"), st.sampled_from(RUNS), st.none()),
        st.tuples(st.just("time"), st.none(), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(house=houses(), events=EVENTS, order=st.randoms(use_true_random=False))
def test_whatever_is_moved_and_removed_all_others_are_served(house, events, order):
    """No two runs wait for each other, whichever of their nodes looks when."""
    removed = set()
    for what, run, value in events:
        if what == "look" and run in house.nodes_of and value in house.nodes_of[run]:
            house.inspect(run, value)
        elif what == "move":
            house.move(run, value)
        elif what == "remove":
            removed |= {run} & house.entries.keys()
            house.remove(run)
        elif what == "time":
            house.pass_time()
    for _ in range(200):
        looks = [(run, node) for run, nodes in house.nodes_of.items() for node in sorted(nodes)]
        order.shuffle(looks)
        for run, node in looks:
            house.inspect(run, node)
        house.pass_time()
    assert not house.entries
    assert not house.holders
    assert {*house.served} == house.nodes_of.keys() - removed
    assert len(house.served) == len({*house.served})


@given(house=houses())
def test_runs_over_the_same_nodes_are_served_in_the_order_of_the_queue(house):
    """If nothing is moved, and none has a time."""
    house.nodes_of = dict.fromkeys(house.nodes_of, frozenset(NODES))
    house.entries = {run: replace(each, at=None) for run, each in house.entries.items()}
    expected = [each.run for each in sorted(house.entries.values(), key=lambda each: each.order)]
    for _ in range(60):
        for run in house.nodes_of:
            for node in NODES:
                house.inspect(run, node)
        house.pass_time()
    assert house.served == expected
