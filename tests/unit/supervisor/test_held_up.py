"""The messages of a supervisor about nodes that are no trouble: with the owner, or in a queue."""

from __future__ import annotations

import time

import pytest

from hearth.notify.event import RETURN, Limit
from hearth.notify.watch import PATIENCE
from hearth.supervisor.cause import Cause
from hearth.supervisor.notices import Notices
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import spec_of

NODES = ["desk", "laptop"]
AWAY = Cause("laptop", None, "away", "away: switched off by hand")
LOST = Cause("laptop", None, "node_lost", "laptop was silent for 6 s")


@pytest.mark.parametrize(
    ("cause", "in_queue", "told"),
    [(AWAY, "", 0), (None, "laptop", 0), (LOST, "", 1), (None, "", 1)],
)
def test_nobody_is_told_that_a_run_waits_for_a_machine_that_the_house_or_another_run_has(
    tmp_path, monkeypatch, cause, in_queue, told
):
    given = {
        **{"run": "first", "node": "desk", "rank": 0, "nodes": NODES, "nproc": 1},
        **{"ports": [4711, 4711], "nprocs": [1, 1]},
        **{"addresses": ["192.0.2.1", "192.0.2.2"], "python": "python", "token": "secret"},
        **{"workspace": str(tmp_path)},
    }
    spec = spec_of(given, "the spec")
    record = RunRecord.from_spec(spec, missing=["laptop"], cause=cause)
    notices, sent = Notices(spec, record, print), []
    monkeypatch.setattr(notices._outbox, "send", sent.append)
    for seconds in (0.0, PATIENCE / 2, PATIENCE + 1):
        monkeypatch.setattr(time, "monotonic", lambda at=1e9 + seconds: at)
        notices.observe(set(), Limit(3600.0, RETURN), {in_queue})
    assert len(sent) == told
