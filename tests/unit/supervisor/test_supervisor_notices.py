"""Messages on a wait, from a supervisor whose sender is a stand-in."""

from __future__ import annotations

import time

import pytest
from support.facts import assert_names
from support.metric_lines import slow_links, start_line, step_line, written

from hearth.notify.event import READY, RETURN, Event, Limit
from hearth.notify.messages import compose
from hearth.notify.watch import PATIENCE
from hearth.record.story import Story
from hearth.supervisor import notices
from hearth.supervisor.notices import Notices
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import Spec

NIGHT = 1.8e9
YEARS = 1e8


class StandInOutbox:
    """Keeps the events that it is to send."""

    def __init__(self, *_: object) -> None:
        self.sent: list[Event] = []

    def collect(self) -> None:
        """Nothing is on its way."""

    def send(self, event: Event) -> None:
        """Keep an event."""
        self.sent.append(event)


@pytest.fixture
def clocks(monkeypatch):
    """The times of the two clocks, that on the wall first."""
    now = [NIGHT, 1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[1])
    return now


@pytest.fixture
def watched(tmp_path, monkeypatch) -> Notices:
    """The messages of desk, whose run waits for laptop."""
    monkeypatch.setattr(notices, "Outbox", StandInOutbox)
    nodes, addresses = ("desk", "laptop"), ("127.0.0.1", "127.0.0.2")
    spec = Spec(
        *("night", "desk", 0, nodes, addresses, 1, "python"),
        workspace=tmp_path,
        token="secret",
    )
    return Notices(spec, RunRecord.from_spec(spec, missing=["laptop"]), print)


@pytest.mark.parametrize(
    ("refused", "setting", "ends"),
    [({}, RETURN, 300.0), ({"laptop": NIGHT + 40}, READY, 160.0), ({"laptop": 0.0}, READY, 120.0)],
)
def test_a_wait_names_the_limit_that_ends_it(watched, clocks, refused, setting, ends):
    """A machine that answers without a supervisor of the run is waited for less long."""
    limit = Limit(300.0, RETURN, 120.0, refused)
    watched.observe({"laptop"}, limit)
    clocks[:] = NIGHT + PATIENCE, 1000.0 + PATIENCE
    watched.observe({"laptop"}, limit)
    (waiting,) = watched._outbox.sent
    assert (waiting.limit, waiting.ends) == (setting, NIGHT + ends)
    assert waiting.answering == (0.0 if refused else 120.0)


def test_a_clock_that_is_set_makes_no_wait_long(watched, clocks):
    outbox = watched._outbox
    watched.observe({"laptop"}, Limit(3600.0, RETURN))
    clocks[:] = NIGHT + YEARS, 1010.0
    watched.observe({"laptop"}, Limit(3600.0, RETURN))
    assert outbox.sent == []
    clocks[:] = NIGHT + YEARS + PATIENCE, 1010.0 + PATIENCE
    watched.observe({"laptop"}, Limit(3600.0, RETURN))
    (waiting,) = outbox.sent
    assert waiting.at - waiting.began == PATIENCE + 10
    assert waiting.ends == waiting.began + 3600


def test_nodes_that_do_not_reach_each_other_for_long_are_told_once(watched, clocks):
    record, limit = watched._record, Limit(3600.0, RETURN)
    record.state, record.missing = "running", []
    gap = "desk cannot reach laptop at 127.0.0.2 port 40000: no answer on TCP (firewall?)"
    for seconds, unreached in ((0, [gap]), (60, []), (100, [gap]), (215, [gap]), (230, [gap])):
        record.unreached = unreached
        clocks[:] = NIGHT + seconds, 1000.0 + seconds
        watched.observe(set(), limit)
        assert (watched._outbox.sent == []) == (seconds < 230)
    (told,) = watched._outbox.sent
    assert (told.kind, told.about, told.message) == ("unreached", ("laptop",), gap)
    watched.observe(set(), limit)
    assert len(watched._outbox.sent) == 1


def test_a_slow_link_is_told_once_with_its_links_and_advice(watched, clocks):
    outbox, limit = watched._outbox, Limit(3600.0, RETURN)
    watched._record.enter("running")
    watched._record.missing = []
    record = watched._spec.results / "metrics.jsonl"
    record.parent.mkdir(parents=True)
    slow = {"slow_links": slow_links(("oldbox", "laptop"))}
    for line, told in (({}, 0), (slow, 1), (slow, 1), ({}, 1), (slow, 1)):
        with record.open("a") as file:
            file.write(written(start_line("desk", "laptop"), step_line(80, 20, **line)))
        clocks[1] += 60
        watched.observe(set(), limit)
        assert len(outbox.sent) == told
    (sent,) = outbox.sent
    assert sent.kind == "slow_link"
    assert_names(sent.message, "oldbox → laptop", "5.0 Mbit/s", "sync_every=16", "640 tokens/s")
    message = compose(sent, Story())
    assert_names(f"{message.title} {message.body}", "night", "oldbox → laptop", "95%", "640")


def test_a_record_with_anything_in_it_is_no_slow_link(watched, clocks):
    watched._record.enter("running")
    record = watched._spec.results / "metrics.jsonl"
    record.parent.mkdir(parents=True)
    for text in ("", "{", '{"kind": "step"\n', '{"kind": "step", "slow_links": [7]}\n', "\0\n"):
        record.write_text(text)
        watched.observe(set(), Limit(3600.0, RETURN))
    assert not watched._outbox.sent
