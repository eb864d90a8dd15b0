"""Distribution on the controller: the keys to relay, the findings of a node, the progress."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.facts import assert_names

from hearth.config import resolve_run
from hearth_controller.transfer import receive
from hearth_controller.transfer.distribution import wanted_of


@pytest.mark.parametrize(
    ("dataset", "direct", "wanted"),
    [
        ("homelab-qa", 0, {"model"}),
        ("owner/words", 1e9, {"model", "data"}),
        ("words.jsonl", 10, {"model", "data"}),
        ("words.jsonl", 1e9, {"model"}),
    ],
)
def test_what_is_sent_at_all(tmp_path, monkeypatch, dataset, direct, wanted):
    monkeypatch.chdir(tmp_path)
    Path("words.jsonl").write_text('{"text": "a lamp"}\n')
    given = {"model": "owner/bulky", "dataset": dataset}
    assert set(wanted_of(resolve_run(given, tmp_path), direct)) == wanted


RECORD = {
    "state": "taking",
    "sent": 60_000_000,
    "here": 40_000_000,
    "size": 200_000_000,
    "giver": "tower",
    "lost": [],
    "began": 0.0,
    "ended": 6.0,
}


def test_progress_says_how_much_from_whom_how_fast_and_how_long_still(monkeypatch):
    monkeypatch.setattr(receive.time, "time", lambda: 6.0)
    taking = receive.progress(RECORD, "oldbox, the last of 3")
    assert taking.startswith("oldbox, the last of 3: ")
    assert_names(taking, "100.0 MB of 200.0 MB", "tower", "10.0 MB/s", "10 s")
    assert receive.progress(RECORD | {"state": "proving"}, "oldbox") != taking
    assert_names(receive.progress(RECORD | {"size": 0}, "oldbox"), "oldbox", "tower")


def test_in_the_end_whoever_was_lost_is_named():
    lost = [{"name": "laptop", "why": "no answer on TCP (firewall?)"}]
    said = receive.arrived(RECORD | {"lost": lost})
    assert_names(said, "60.0 MB from tower", "6 s", "10.0 MB/s", "40.0 MB")
    assert said.rpartition("; ")[2].startswith("laptop ")
    assert said.endswith(f": {lost[0]['why']}")
