"""The teams of a run on a node's record: which cause stands for the end of each."""

from __future__ import annotations

from hearth.supervisor.cause import Cause
from hearth.supervisor.decisions.actions import RecordCause, RecordEnd, RecordTraining
from hearth.supervisor.decisions.team_record import TeamRecord
from hearth.supervisor.decisions.voting import Config
from hearth.supervisor.messages import RanksFailure

BOTH, ALONE = Config(2, ("desk", "laptop")), Config(3, ("desk",))
PLAYED = Cause.left("laptop", "a game", returns=True)
LOST = Cause("laptop", None, "node_lost", "laptop was silent for 6 s")


def training(team: Config) -> TeamRecord:
    """Return the record of a node that trains in a team."""
    teams, _ = TeamRecord().follow(team)
    teams, recorded = teams.trains()
    assert recorded == [RecordTraining(team)]
    return teams


def test_a_team_ends_for_the_first_cause_that_broke_it():
    assert not TeamRecord().has("desk")
    teams = training(BOTH)
    assert teams.has("laptop")
    teams, ended = teams.breaks(PLAYED).breaks(LOST).follow(ALONE)
    assert ended == [RecordEnd(PLAYED)]
    assert not teams.has("laptop")


def test_a_team_that_never_trained_is_not_on_record():
    teams, _ = TeamRecord().follow(BOTH)
    teams, ended = teams.breaks(LOST).follow(ALONE)
    assert ended == []
    teams, _ = teams.trains()
    assert teams.end()[1] == [RecordEnd(None)]


def test_a_leave_that_is_taken_back_is_no_cause():
    teams = training(BOTH).breaks(PLAYED).forget_leave("laptop").breaks(LOST)
    _, ended = teams.forget_leave("laptop").end(ALONE)  # that it was lost stands
    assert ended == [RecordEnd(LOST)]


def test_ranks_that_died_are_explained_once_their_node_has_told():
    teams, [ended] = training(BOTH).follow(ALONE)
    assert "laptop" in ended.cause.message
    error = Cause.failed("laptop", RanksFailure(1, "ValueError: no"))
    teams, recorded = teams.explain(Cause.failed("oldbox", RanksFailure(2, "another one's")))
    assert recorded == []
    teams, recorded = teams.explain(error)
    assert recorded == [RecordCause(error)]
    assert teams.explain(Cause.failed("laptop", RanksFailure(1, "a later one")))[1] == []
