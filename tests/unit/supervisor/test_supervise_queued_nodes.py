"""Nodes on which a run waits for its turn."""

from __future__ import annotations

from hearth.supervisor import queued_nodes
from hearth.supervisor.queued_nodes import FRESH, QueuedNodes


def test_the_word_of_a_node_is_logged_when_it_changes_and_counts_for_a_while(monkeypatch):
    now, said = [1000.0], []
    monkeypatch.setattr(queued_nodes, "boot_clock", lambda: now[0])
    queued = QueuedNodes(said.append)
    assert queued.now() == set()
    for why in ("waits behind evening", "waits behind evening", "starts at 23:00"):
        queued.hear("laptop", why)
    assert said == ["laptop waits behind evening there", "laptop starts at 23:00 there"]
    now[0] += FRESH / 2
    queued.hear("desk", "starts at 23:00")
    assert queued.now() == {"desk", "laptop"}
    now[0] += FRESH / 2
    assert queued.now() == {"desk"}
    assert queued.heard == {"laptop": 1000.0, "desk": 1000.0 + FRESH / 2}
