"""The journal that plays a launch over the tasks of a play."""

from __future__ import annotations

import stat

import pytest

from hearth.base.errors import LaunchError
from hearth_controller.launch.stages import LaunchStage, StageJournal, program

CALL = program("hearth.node prepare", {"fetch": True}, "text", hub_token="hub")


def two_stages():
    answers = yield LaunchStage("inspect", {"desk": [CALL], "laptop": [CALL]}, say="hello")
    if answers["laptop"][0].get("failed"):
        raise LaunchError("laptop failed")
    yield LaunchStage("start", {"desk": [CALL]}, local=lambda: started.append(1))


started: list[int] = []


@pytest.fixture
def journal(tmp_path):
    started.clear()
    return StageJournal(tmp_path / "journal")


def test_each_task_plays_its_stage_on_all_nodes_and_others_are_skipped(journal):
    step, new = journal.step("t1", "inspect", two_stages)
    assert (new, step.calls, step.result) == (
        True,
        {"desk": [CALL], "laptop": [CALL]},
        {"say": "hello"},
    )
    assert journal.step("t1", "inspect", two_stages) == (step, False)
    for node in ("desk", "laptop"):
        journal.record("t1", node, [{"findings": []}])
    assert journal.step("t2", "ports", two_stages)[0].skipped
    assert journal.step("t3", "start", two_stages)[0].calls == {"desk": [CALL]}
    assert not journal.step("t3", "start", two_stages)[1]
    assert started == [1]
    journal.record("t3", "desk", [{}])
    assert journal.step("t4", "start", two_stages)[0].skipped  # it has ended


def test_a_node_that_has_left_the_play_has_failed(journal):
    journal.step("t1", "inspect", two_stages)
    journal.record("t1", "desk", [{"findings": []}])
    step, new = journal.step("t2", "start", two_stages)
    assert (step.error, new) == ("laptop failed", True)
    assert started == []


def test_a_launch_has_a_secret_of_its_own_which_no_other_user_can_read(tmp_path):
    first, second = (StageJournal(tmp_path / name) for name in "ab")
    assert len(first.key) == 48
    assert first.key != second.key
    assert StageJournal(tmp_path / "a").key == first.key
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_a_stage_that_no_task_has_played_is_an_error_in_the_end(journal):
    assert "'inspect'" in journal.step("t1", "done", two_stages)[0].error
