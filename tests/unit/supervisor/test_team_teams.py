"""The teams of a run on a node's record: which cause stands for the end of each."""

from __future__ import annotations

import json

import pytest

from hearth.supervisor.cause import Cause
from hearth.supervisor.decisions import causes
from hearth.supervisor.decisions.voting import Config
from hearth.supervisor.messages import Failure
from hearth.supervisor.record import RunRecord
from hearth.supervisor.teams import Teams

BOTH, ALONE = Config(2, ("desk", "laptop")), Config(3, ("desk",))
PLAYED = causes.left("laptop", "a game", returns=True)
LOST = Cause("laptop", None, "node_lost", "laptop was silent for 6 s")


@pytest.fixture
def teams(tmp_path):
    return Teams(RunRecord("first", "desk", 0, 1, pid=1), tmp_path / "record.json")


def ends(teams: Teams) -> list[tuple[int, str | None]]:
    """Return generation and message of the teams that have ended, as the file has them."""
    launches = json.loads(teams._file.read_text())["launches"]
    return [(each["generation"], (each["cause"] or {}).get("message")) for each in launches]


def test_a_team_trains_and_ends_for_the_first_cause_that_broke_it(teams):
    assert not teams.has("desk")
    teams.follow(BOTH)
    teams.trains()
    assert teams.has("laptop")
    record = json.loads(teams._file.read_text())
    assert (record["state"], record["generation"]) == ("running", 2)
    teams.breaks(PLAYED)
    teams.breaks(LOST)
    teams.follow(ALONE)
    assert ends(teams) == [(2, "away: a game")]
    assert not teams.has("laptop")


def test_a_team_that_never_trained_is_not_on_record(teams):
    teams.follow(BOTH)
    teams.breaks(LOST)
    teams.follow(ALONE)
    teams.trains()
    teams.end()
    assert ends(teams) == [(3, None)]


def test_a_leave_that_is_taken_back_is_no_cause(teams):
    teams.follow(BOTH)
    teams.trains()
    teams.breaks(PLAYED)
    teams.forget_leave("laptop")
    teams.breaks(LOST)
    teams.forget_leave("laptop")  # that it was lost stands
    teams.end(ALONE)
    assert ends(teams) == [(2, LOST.message)]


def test_ranks_that_died_are_explained_once_their_node_has_told(teams):
    teams.follow(BOTH)
    teams.trains()
    teams.follow(ALONE)
    (_, before) = ends(teams)[0]
    assert "laptop" in before
    error = causes.failed("laptop", Failure(1, "ValueError: no"))
    teams.explain(causes.failed("oldbox", Failure(2, "another one's")))
    assert ends(teams) == [(2, before)]
    teams.explain(error)
    teams.explain(causes.failed("laptop", Failure(1, "a later one")))
    assert ends(teams) == [(2, "ValueError: no")]
