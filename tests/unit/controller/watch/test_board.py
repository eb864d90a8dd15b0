"""The follower that draws, among those of all nodes of a run."""

from __future__ import annotations

import pytest

from hearth_controller.watch.board import FRESH, Board

NODES = ["desk", "lap/top", "old box"]


@pytest.fixture
def clock(monkeypatch):
    """Return the time of the test, a list of one number, which stands for that of the computer."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def boards(tmp_path):
    return {node: Board(tmp_path / "board", node) for node in NODES}


@pytest.fixture
def drawing(clock, boards):
    """Return a function that lets nodes answer for some seconds and returns who draws."""

    def after(seconds, **groups):
        drawers = []
        for _ in range(seconds):
            clock[0] += 1
            for rank, node in enumerate(NODES):
                if (group := groups.get(node.replace("/", "").replace(" ", ""))) is not None:
                    boards[node].note(group, rank, clock[0])
            drawers = [node for node in NODES if boards[node].draws()]
        return drawers

    return after


def test_rank_0_draws_at_once_and_goes_on_to(drawing):
    assert drawing(1, desk=0, laptop=0, oldbox=0) == ["desk"]
    assert drawing(9, desk=0, laptop=0, oldbox=0) == ["desk"]


def test_where_rank_0_is_off_the_next_node_draws_a_moment_later(drawing):
    assert drawing(1, laptop=0, oldbox=0) == []
    assert drawing(4, laptop=0, oldbox=0) == ["lap/top"]


def test_where_the_drawing_node_falls_silent_the_next_goes_on_and_gives_back(drawing):
    drawing(2, desk=0, laptop=0, oldbox=0)
    assert drawing(int(FRESH) - 2, laptop=0, oldbox=0) == ["desk"]  # a stall of the Wi-Fi
    assert drawing(6, laptop=0, oldbox=0) == ["lap/top"]
    assert drawing(6, desk=0, laptop=0, oldbox=0) == ["desk"]


def test_a_node_outside_the_newest_group_does_not_draw(drawing):
    drawing(2, desk=0, laptop=0, oldbox=0)
    assert drawing(1, desk=0, laptop=1, oldbox=1) == ["desk"]  # its record may be about to change
    assert drawing(5, desk=0, laptop=1, oldbox=1) == ["lap/top"]
    assert drawing(5, desk=2, laptop=2, oldbox=2) == ["desk"]


def test_a_node_that_is_followed_no_more_leaves_the_drawing_to_another(drawing, boards):
    drawing(2, desk=0, laptop=0)
    assert boards["desk"].others_answer() and boards["lap/top"].others_answer()
    boards["desk"].leave()
    assert not boards["lap/top"].others_answer()
    assert drawing(5, laptop=0) == ["lap/top"]
    boards["lap/top"].leave()
    assert drawing(5) == []
